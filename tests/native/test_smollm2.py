"""The law of batch invariance on a real model, if its file is on this machine."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from millstream.models.gguf import GGUFFile
from millstream.models.spec import LayerSpec, ModelSpec, RopeSpec
from millstream.native import _core
from native.levels import assert_bits_of_generic
from native.tiny import Chunk, run_chunked, step

FOLDER = Path(os.environ.get("MILLSTREAM_TEST_MODELS") or Path.home() / ".cache" / "millstream-test-models")
FILE = FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf"
VOCAB = 49152
LAYER_NAMES = {
    "attn_norm": "attn_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "ffn_norm": "mlp_norm",
    "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down",
}  # fmt: skip
GLOBAL_NAMES = {"token_embd": "embedding", "output_norm": "output_norm"}

# "What is the capital of France?" in the model's chat template.
PROMPT = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1,
    4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
PARIS = [504, 3575, 282, 4649, 314, 7042, 30, 2]  # "The capital of France is Paris.<|im_end|>"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE.name} was not fetched")


@cache
def load(threads: int) -> _core.Model:
    rope = RopeSpec(style="interleaved", inv_freq=tuple(100000.0 ** (-2 * i / 64) for i in range(32)))
    block = LayerSpec(heads=9, kv_heads=3, head_dim=64, intermediate=1536, attention_scale=0.125, rope=rope)
    s = ModelSpec(
        family="llama", vocab_size=VOCAB, hidden=576, context_length=8192, norm_eps=1e-5,
        layers=(block,) * 30, tied_output=True,
    )  # fmt: skip
    model = _core.Model(s, kv_blocks=64, max_tokens=128, max_rows=64, threads=threads)
    with GGUFFile(FILE) as file:
        tensors = []
        for name, t in file.tensors.items():
            parts = name.split(".")
            layer, slot = (int(parts[1]), LAYER_NAMES[parts[2]]) if parts[0] == "blk" else (-1, GLOBAL_NAMES[parts[0]])
            tensors.append((layer, slot, t.ggml_type, t.rows, t.cols, file.data(t)))
        model.load(tensors, mapped=True)
    return model


def generic_logits(_: str) -> np.ndarray:
    return step(load(2), VOCAB, [Chunk(PROMPT[:8], 0, [0])])[0]


def test_the_capital_of_france() -> None:
    model, found = load(2), list[int]()
    last = step(model, VOCAB, [Chunk(PROMPT, 0, [0, 1])])[0][-1]
    for i in range(len(PARIS)):
        found.append(int(last.argmax()))
        last = step(model, VOCAB, [Chunk([found[-1]], len(PROMPT) + i, [0, 1])])[0][-1]
    assert found == PARIS


def test_same_bits_alone_chunked_batched_and_threaded() -> None:
    alone = step(load(1), VOCAB, [Chunk(PROMPT, 0, [0, 1])])[0]
    np.testing.assert_array_equal(run_chunked(load(2), VOCAB, PROMPT, [9, 4], 7), alone)
    step(load(2), VOCAB, [Chunk(PROMPT[:20], 0, [5, 6]), Chunk(PARIS, 0, [7])])
    mixed = step(load(2), VOCAB, [Chunk([7], 8, [7]), Chunk(PROMPT[20:], 20, [5, 6]), Chunk(PARIS, 0, [8])])
    np.testing.assert_array_equal(mixed[1], alone[20:])


def test_same_bits_at_the_generic_level() -> None:
    here = step(load(2), VOCAB, [Chunk(PROMPT[:8], 0, [0])])[0]
    assert_bits_of_generic("native.test_smollm2:generic_logits:", here)
