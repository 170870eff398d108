"""Descriptions built from metadata, and the tensors that go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import bpe_vocabulary, hyper_parameters, random_tensors, tensor_shapes, write_gguf, write_model

from millstream.models.errors import ModelFileError
from millstream.models.families import FAMILIES
from millstream.models.families.base import expected_shapes
from millstream.models.loader import load_model_file
from millstream.models.spec import GLOBAL_SLOTS, LAYER_SLOTS, ModelSpec
from support.real_models import GEMMA, QWEN, SMOLLM2, real_model


def spec_of(path: Path) -> ModelSpec:
    with load_model_file(path) as model:
        return model.spec


def test_smollm2() -> None:
    spec = spec_of(real_model(SMOLLM2))
    layer = spec.layers[0]
    assert (spec.family, spec.vocab_size, spec.hidden, len(spec.layers)) == ("llama", 49152, 576, 30)
    assert (spec.context_length, spec.norm_eps, spec.tied_output) == (8192, pytest.approx(1e-5), True)
    assert (spec.embedding_scale, spec.final_softcap) == (1.0, 0.0)
    assert (layer.heads, layer.kv_heads, layer.head_dim, layer.intermediate) == (9, 3, 64, 1536)
    assert (layer.attention_scale, layer.window, layer.qkv_bias, layer.activation) == (0.125, 0, False, "silu")
    assert layer.rope.style == "interleaved"
    assert layer.rope.inv_freq == pytest.approx([100000.0 ** (-i / 32) for i in range(32)])


def test_qwen() -> None:
    spec = spec_of(real_model(QWEN))
    layer = spec.layers[-1]
    assert (spec.family, spec.vocab_size, spec.hidden, len(spec.layers)) == ("qwen2", 151936, 896, 24)
    assert not spec.tied_output
    assert (layer.heads, layer.kv_heads, layer.head_dim, layer.intermediate) == (14, 2, 64, 4864)
    assert (layer.rope.style, layer.qkv_bias, layer.qk_norm) == ("half", True, False)
    assert layer.rope.inv_freq[1] == pytest.approx(1e6 ** (-1 / 32))


def test_gemma() -> None:
    spec = spec_of(real_model(GEMMA))
    assert (spec.family, spec.vocab_size, spec.hidden, len(spec.layers)) == ("gemma3", 262144, 640, 18)
    assert (spec.embedding_scale, spec.tied_output) == (640**0.5, True)
    assert [layer.window for layer in spec.layers] == [512, 512, 512, 512, 512, 0] * 3
    assert spec.layers[0].rope.inv_freq[1] == pytest.approx(1e4 ** (-1 / 128))
    assert spec.layers[5].rope.inv_freq[1] == pytest.approx(1e6 ** (-1 / 128))
    for layer in spec.layers:
        assert (layer.heads, layer.kv_heads, layer.head_dim, layer.intermediate) == (4, 1, 256, 2048)
        assert (layer.attention_scale, layer.softcap) == (1 / 16, 0.0)
        assert (layer.qk_norm, layer.post_norms, layer.qkv_bias) == (True, True, False)
        assert layer.activation == "gelu_tanh"


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_slot_is_filled_once(tmp_path: Path, architecture: str, tied: bool) -> None:
    with load_model_file(write_model(tmp_path / "m.gguf", architecture, tied=tied)) as model:
        assert model.spec.tied_output is tied
        slots = [(layer, slot) for layer, slot, *_ in model.tensors()]
        assert len(set(slots)) == len(slots) == len(model.file.tensors)
        assert all((slot in GLOBAL_SLOTS) == (layer == -1) for layer, slot in slots)
        for layer, slot, ggml_type, rows, cols, data in model.tensors():
            name = FAMILIES[architecture].weights[slot].gguf.format(n=layer)
            assert ggml_type == 0
            assert len(data) == rows * cols * 4
            assert model.file.tensors[name].nbytes == len(data)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_weight_tables_name_known_slots(family: Any) -> None:
    assert set(family.weights) <= {*GLOBAL_SLOTS, *LAYER_SLOTS}
    for slot, name in family.weights.items():
        assert ("{n}" in name.gguf) == ("{n}" in name.safetensors) == (slot in LAYER_SLOTS)


def test_expected_shapes_follow_the_description(tmp_path: Path) -> None:
    shapes = {}
    for slot, rows, cols in expected_shapes(spec_of(write_model(tmp_path / "m.gguf", "gemma3"))):
        shapes[slot.layer, slot.slot] = (rows, cols)
    assert shapes[0, "q"] == (64, 64)
    assert shapes[1, "k"] == (32, 64)
    assert shapes[1, "down"] == (64, 96)
    assert shapes[1, "q_norm"] == (1, 16)
    assert shapes[-1, "output_norm"] == (1, 64)
    assert (-1, "output") not in shapes


# The inverse frequencies and the scale that Transformers' ROPE_INIT_FUNCTIONS["yarn"] gives for this configuration.
YARN = [
    1.0, 0.3162277638912201, 0.08125000447034836, 0.019764237105846405, 0.0043750000186264515, 0.0007905694656074047,
    0.0002500000118743628, 7.905694656074047e-05,
]  # fmt: skip
YARN_SCALE = 1.138629436111989


def test_yarn_equals_transformers(tmp_path: Path) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 1024}
    path = write_model(
        tmp_path / "m.gguf", "qwen2",
        **{f"qwen2.rope.scaling.{key}": value for key, value in scaling.items()},
        **{"qwen2.context_length": 4096},
    )  # fmt: skip
    rope = spec_of(path).layers[0].rope
    assert rope.inv_freq == pytest.approx(YARN, rel=1e-6)
    assert rope.scale == pytest.approx(YARN_SCALE)


def test_linear_scaling_divides_positions(tmp_path: Path) -> None:
    plain = spec_of(write_model(tmp_path / "a.gguf")).layers[0].rope.inv_freq
    named = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0}
    assert spec_of(write_model(tmp_path / "b.gguf", **named)).layers[0].rope.inv_freq == pytest.approx(
        [f / 8 for f in plain]
    )
    old = {"llama.rope.scale_linear": 2.0}
    assert spec_of(write_model(tmp_path / "c.gguf", **old)).layers[0].rope.inv_freq == pytest.approx(
        [f / 2 for f in plain]
    )


def test_gemma_scales_only_its_global_layers(tmp_path: Path) -> None:
    extra = {
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
        "gemma3.attention.sliding_window": 32,
        "gemma3.rope.freq_base": 1000000.0,
    }
    entries = hyper_parameters("gemma3", block_count=6) | bpe_vocabulary() | extra
    shapes = tensor_shapes("gemma3", len(entries["tokenizer.ggml.tokens"]))
    layer = {name.removeprefix("blk.0."): shape for name, shape in shapes.items() if name.startswith("blk.0.")}
    shapes |= {f"blk.{n}.{name}": shape for n in range(6) for name, shape in layer.items()}
    spec = spec_of(write_gguf(tmp_path / "m.gguf", entries, random_tensors(shapes), architecture="gemma3"))
    assert [layer.window for layer in spec.layers] == [32, 32, 32, 32, 32, 0]
    assert spec.layers[0].rope.inv_freq[0] == 1.0
    assert spec.layers[5].rope.inv_freq[0] == 1 / 8
    assert spec.layers[5].rope.inv_freq[4] == pytest.approx(1e6**-0.5 / 8)


def test_llama3_factors(tmp_path: Path) -> None:
    entries = hyper_parameters("llama") | bpe_vocabulary()
    tensors = random_tensors(tensor_shapes("llama", len(entries["tokenizer.ggml.tokens"])))
    factors = np.array([1, 1, 1, 2, 4, 8, 8, 8], np.float32)
    spec = spec_of(write_gguf(tmp_path / "m.gguf", entries, tensors | {"rope_freqs.weight": factors}))
    plain = [10000.0 ** (-i / 8) for i in range(8)]
    assert spec.layers[0].rope.inv_freq == pytest.approx([f / d for f, d in zip(plain, factors, strict=True)])
    path = write_gguf(tmp_path / "bad.gguf", entries, tensors | {"rope_freqs.weight": factors * 0})
    with pytest.raises(ModelFileError, match="rope_freqs"):
        spec_of(path)


def test_widths_and_heads_may_differ_by_layer(tmp_path: Path) -> None:
    entries = hyper_parameters("llama", attention__head_count_kv=[2, 4]) | bpe_vocabulary()
    shapes = tensor_shapes("llama", len(entries["tokenizer.ggml.tokens"]))
    shapes |= {"blk.1.attn_k.weight": (64, 64), "blk.1.attn_v.weight": (64, 64)}
    spec = spec_of(write_gguf(tmp_path / "m.gguf", entries, random_tensors(shapes)))
    assert [layer.kv_heads for layer in spec.layers] == [2, 4]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.expert_count", 8, "mixture of experts"),
        ("llama.rope.scaling.type", "longrope", "longrope"),
        ("llama.attention.causal", False, "encoder"),
        ("llama.logit_scale", 0.5, "logit_scale"),
        ("llama.attention.clamp_kqv", 8.0, "clamp_kqv"),
        ("llama.attention.value_length", 32, "different widths"),
        ("llama.attention.layer_norm_rms_epsilon", None, "layer_norm_rms_epsilon is missing"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "above zero"),
        ("llama.block_count", 0, "block_count is 0"),
        ("llama.block_count", 4_000_000_000, "block_count"),
        ("llama.block_count", "2", "integer"),
        ("llama.block_count", 3, r"blk\.2\.attn_norm\.weight is missing"),
        ("llama.attention.head_count", 0, "head_count"),
        ("llama.attention.head_count", 3, "divide"),
        ("llama.attention.head_count", [4], "1 entries for 2 layers"),
        ("llama.attention.head_count", [4.0, 4.0], "integers"),
        ("llama.rope.dimension_count", 15, "dimension_count"),
        ("llama.rope.dimension_count", 32, "dimension_count"),
        ("llama.rope.freq_base", 0.0, "freq_base"),
        ("llama.rope.freq_base", 1.0, "base"),
        ("llama.feed_forward_length", 100, r"blk\.0\.ffn_gate\.weight has the shape \[64, 96\]"),
    ],
)
def test_metadata_that_cannot_be_honoured_is_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        spec_of(write_model(tmp_path / "m.gguf", **{key: value}))


def test_yarn_variants_are_refused(tmp_path: Path) -> None:
    scaling = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    path = write_model(tmp_path / "m.gguf", **scaling, **{"llama.rope.scaling.yarn_log_multiplier": 0.1})
    with pytest.raises(ModelFileError, match="variant of YaRN"):
        spec_of(path)


def test_unknown_architecture_lists_the_supported(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {}, random_tensors({"w": (2, 32)}), architecture="mamba")
    with pytest.raises(ModelFileError, match=r"'mamba'.*llama, qwen2, gemma3"):
        load_model_file(path)


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    entries = hyper_parameters("llama") | bpe_vocabulary()
    tensors = random_tensors(tensor_shapes("llama", len(entries["tokenizer.ggml.tokens"])))
    path = write_gguf(tmp_path / "m.gguf", entries, tensors | {"blk.0.ffn_up.bias": np.zeros(96, np.float32)})
    with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_up\.bias"):
        load_model_file(path)


def test_types_that_cannot_run_are_named(tmp_path: Path) -> None:
    entries = hyper_parameters("llama", embedding_length=256, feed_forward_length=256) | bpe_vocabulary()
    vocab = len(entries["tokenizer.ggml.tokens"])
    entries["llama.block_count"] = 1
    shapes = {"token_embd.weight": (vocab, 256), "output_norm.weight": (256,)}
    for name, rows in {"q": 256, "k": 128, "v": 128, "output": 256}.items():
        shapes[f"blk.0.attn_{name}.weight"] = (rows, 256)
    shapes |= {f"blk.0.{name}_norm.weight": (256,) for name in ("attn", "ffn")}
    shapes |= {f"blk.0.ffn_{name}.weight": (256, 256) for name in ("gate", "up", "down")}
    tensors = random_tensors(shapes)
    kinds = {"blk.0.attn_q.weight": gguf.GGMLQuantizationType.TQ2_0}
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_q\.weight has type TQ2_0.*supported: F32, F16, Q4_0, Q4_1"):
        load_model_file(write_gguf(tmp_path / "a.gguf", entries, tensors, quantized=kinds))
    kinds = {"blk.0.attn_norm.weight": gguf.GGMLQuantizationType.Q8_0}
    with pytest.raises(ModelFileError, match=r"attn_norm\.weight has type Q8_0.*supported: F32, F16, BF16"):
        load_model_file(write_gguf(tmp_path / "b.gguf", entries, tensors, quantized=kinds))
