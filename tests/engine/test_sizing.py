import pytest

from millstream.engine.sizing import kv_bytes_per_token, plan_kv
from millstream.models.spec import LayerSpec, ModelSpec, RopeSpec

LAYER = LayerSpec(
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate=64,
    attention_scale=1.0,
    rope=RopeSpec(style="half", inv_freq=(1.0,) * 4),
)
SPEC = ModelSpec(family="llama", vocab_size=10, hidden=32, context_length=1000, norm_eps=1e-5, layers=(LAYER,) * 3)
PER_TOKEN = 3 * 2 * 2 * 8 * 2
PLENTY = 1 << 40


def test_bytes_per_token() -> None:
    assert kv_bytes_per_token(SPEC) == PER_TOKEN


def test_the_default_holds_at_least_one_full_context() -> None:
    blocks, context = plan_kv(SPEC, block_size=32, context_length=None, kv_bytes=None, free_bytes=PLENTY)
    assert context == 1000
    assert blocks * 32 * PER_TOKEN <= 512 << 20 < (blocks + 1) * 32 * PER_TOKEN


def test_a_small_budget_shortens_the_context() -> None:
    blocks, context = plan_kv(SPEC, block_size=32, context_length=None, kv_bytes=100 * PER_TOKEN, free_bytes=PLENTY)
    assert (blocks, context) == (3, 96)


def test_little_memory_limits_the_default() -> None:
    blocks, _ = plan_kv(SPEC, block_size=32, context_length=None, kv_bytes=None, free_bytes=2 * 320 * PER_TOKEN)
    assert blocks == 10


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="model's 1000"):
        plan_kv(SPEC, block_size=32, context_length=1001, kv_bytes=None, free_bytes=PLENTY)
    with pytest.raises(ValueError, match="does not hold one block"):
        plan_kv(SPEC, block_size=32, context_length=None, kv_bytes=100, free_bytes=PLENTY)
