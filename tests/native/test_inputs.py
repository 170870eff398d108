"""Hostile arguments: a ValueError that names the fault, before anything runs; and the choice of ISA level."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from numpy.typing import NDArray

from millstream.models.spec import ModelSpec
from millstream.native import _core
from native.tiny import Chunk, build, greedy, layer, outputs, slots, spec, step, tensors

SPEC = spec([layer()])
WEIGHTS = tensors(SPEC, [T.Q8_0])


@pytest.fixture(scope="module")
def model() -> _core.Model:
    return build(SPEC, WEIGHTS, kv_blocks=8)


def ints(*values: int) -> NDArray[np.int32]:
    return np.asarray(values, np.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": ints()}, "tokens"),
        ({"tokens": ints(1, 2, 131)}, "token 131"),
        ({"tokens": ints(1, 2, -1)}, "token -1"),
        ({"tokens": np.zeros(257, np.int32), "seq_starts": ints(0, 257)}, "max_tokens"),
        ({"seq_starts": ints(0, 2)}, "seq_starts"),
        ({"seq_starts": ints(1, 3)}, "seq_starts"),
        ({"seq_starts": ints(0)}, "seq_starts"),
        ({"seq_starts": ints(0, 4, 3), "seq_positions": ints(0, 0), "block_tables": ints(0, 1).reshape(2, 1)}, "rise"),
        ({"seq_starts": ints(0, 0, 3), "seq_positions": ints(0, 0), "block_tables": ints(0, 1).reshape(2, 1)}, "rise"),
        ({"seq_positions": ints(-1)}, "context"),
        ({"seq_positions": ints(1022), "block_tables": np.zeros((1, 40), np.int32)}, "context"),
        ({"seq_positions": ints(2**31 - 1)}, "context"),
        ({"seq_positions": ints(30)}, "too narrow"),
        ({"block_tables": ints(8).reshape(1, 1)}, "no page"),
        ({"block_tables": ints(-1).reshape(1, 1)}, "no page"),
        ({"block_tables": np.zeros((1, 0), np.int32)}, "too narrow"),
        ({"block_tables": np.zeros((2, 1), np.int32)}, "block_tables"),
        ({"sample_rows": ints(3)}, "sample row 3"),
        ({"sample_rows": ints(-1)}, "sample row -1"),
        ({"sample_rows": ints(0, 1)}, "expected 2 entries"),
        ({"logits": np.zeros((1, 130), np.float32)}, "logits"),
        ({"logits": np.zeros((2, 131), np.float32)}, "logits"),
    ],
)
def test_step_refuses(model: _core.Model, changes: dict[str, NDArray[np.int32]], message: str) -> None:
    arguments = {
        "tokens": ints(1, 2, 3), "seq_starts": ints(0, 3), "seq_positions": ints(0),
        "block_tables": ints(0).reshape(1, 1), "sample_rows": ints(2),
    } | changes  # fmt: skip
    _, out = outputs(1)
    with pytest.raises(ValueError, match=message):
        model.step(**arguments, sampling=greedy(1), out=out)


def test_wrong_dtypes_are_refused(model: _core.Model) -> None:
    _, out = outputs(1)
    with pytest.raises(TypeError):
        model.step(np.zeros(1, np.int64), ints(0, 1), ints(0), ints(0).reshape(1, 1), ints(0), greedy(1), out)


def test_a_step_without_samples_fills_the_cache(model: _core.Model) -> None:
    tokens = [5, 6, 7, 8]
    whole = step(model, SPEC.vocab_size, [Chunk(tokens, 0, [0])])[0]
    _, out = outputs(0)
    model.step(ints(*tokens[:3]), ints(0, 3), ints(0), ints(4).reshape(1, 1), ints(), greedy(0), out)
    np.testing.assert_array_equal(step(model, SPEC.vocab_size, [Chunk(tokens[3:], 3, [4])])[0], whole[3:])


def test_greedy_tokens_are_the_best_logits(model: _core.Model) -> None:
    tokens, out = outputs(2)
    logits = np.zeros((2, SPEC.vocab_size), np.float32)
    model.step(ints(3, 4), ints(0, 2), ints(0), ints(0).reshape(1, 1), ints(0, 1), greedy(2), out, logits)
    assert tokens.tolist() == logits.argmax(1).tolist()


def test_every_missing_slot_is_named() -> None:
    for layer_index, slot, _, _ in slots(SPEC):
        partial = [t for t in WEIGHTS if (t.layer, t.slot) != (layer_index, slot)]
        with pytest.raises(ValueError, match=f"slot {slot}.* is missing"):
            build(SPEC, partial, kv_blocks=2)


def test_load_refuses() -> None:
    model = _core.Model(SPEC, kv_blocks=2, max_tokens=8, max_rows=2, threads=1)
    data = np.zeros(64, np.float32)
    for where, slot, kind, rows, cols, message in [
        (-1, "nothing", 0, 1, 64, "slot nothing does not exist"),
        (0, "q_bias", 0, 1, 64, "slot q_bias of layer 0 is not used"),
        (1, "attn_norm", 0, 1, 64, "layer 1"),
        (-2, "attn_norm", 0, 1, 64, "layer -2"),
        (0, "attn_norm", 0, 1, 63, "slot attn_norm of layer 0 has shape"),
        (0, "attn_norm", 0, 64, 1, "slot attn_norm of layer 0 has shape"),
        (0, "attn_norm", 1, 1, 64, "slot attn_norm of layer 0: 256 bytes"),
        (0, "attn_norm", 4, 1, 64, "slot attn_norm of layer 0: tensor type"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.load([(where, slot, kind, rows, cols, data)])
    with pytest.raises(ValueError, match="missing"):
        model.load([])
    _, out = outputs(1)
    with pytest.raises(ValueError, match="before load"):
        model.step(ints(1), ints(0, 1), ints(0), ints(0).reshape(1, 1), ints(0), greedy(1), out)


def test_nothing_of_a_refused_load_is_left() -> None:
    """Its buffers may be gone by then."""
    model = _core.Model(SPEC, kv_blocks=2, max_tokens=8, max_rows=2, threads=1)
    load = [(t.layer, t.slot, int(t.kind), t.rows, t.cols, t.data) for t in WEIGHTS]
    norm = [each for each in load if each[1] == "output_norm"]
    with pytest.raises(ValueError, match="slot output_norm is missing"):
        model.load(each for each in load if each[1] != "output_norm")
    with pytest.raises(ValueError, match="slot embedding is missing"):
        model.load(norm)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (spec([]), "layers"),
        (spec([layer()], vocab_size=0), "vocab_size"),
        (spec([layer()], hidden=-4), "hidden"),
        (spec([layer()], hidden=2**40), "hidden"),
        (spec([layer()], norm_eps=float("nan")), "norm_eps"),
        (spec([layer(heads=3)]), "kv_heads"),
        (spec([layer(kv_heads=0)]), "kv_heads"),
        (spec([layer(head_dim=0)]), "head_dim"),
        (spec([layer(head_dim=8)]), "inv_freq"),
        (spec([layer(window=-1)]), "window"),
        (spec([layer(attention_scale=0.0)]), "attention_scale"),
        (spec([layer(attention_scale=-0.5)]), "attention_scale"),
        (spec([layer(attention_scale=float("nan"))]), "attention_scale"),
        (spec([layer(activation="relu")]), "relu"),
    ],
)
def test_specs_that_make_no_sense(bad: ModelSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.Model(bad, kv_blocks=2, max_tokens=8, max_rows=2)


@pytest.mark.parametrize("limits", [{"kv_blocks": 0}, {"max_tokens": 0}, {"max_rows": -1}, {"threads": -1}])
def test_limits_that_make_no_sense(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        _core.Model(SPEC, **({"kv_blocks": 2, "max_tokens": 8, "max_rows": 2} | limits))


def active_isa(level: str) -> subprocess.CompletedProcess[str]:
    program = """if True:
        from support.other_core import use_other_core
        use_other_core()
        from millstream.native import _core
        print(_core.active_isa())
    """
    env = {**os.environ, "MILLSTREAM_ISA": level, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)


def test_isa_levels() -> None:
    levels = _core.isa_levels()
    assert levels[0] == "generic"
    assert active_isa("").stdout.strip() == levels[-1]
    for level in levels:
        assert active_isa(level).stdout.strip() == level
    refused = active_isa("sse9")
    assert refused.returncode != 0
    assert "RuntimeError: MILLSTREAM_ISA=sse9" in refused.stderr
