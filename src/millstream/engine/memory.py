"""What memory a model takes, and whether what is free suffices for it.

An engine takes its weights at once; its KV cache only becomes resident as it is used. Whoever loads a model beside
others therefore leaves to them what they have been promised, whether they have taken it yet or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from millstream.engine.config import KvType
from millstream.engine.protocol import EngineInfo
from millstream.engine.sizing import kv_bytes_per_token
from millstream.ir.sizes import size
from millstream.models.ggml import BF16, F16, F32
from millstream.models.loader import ModelFile

LEAST_TOKENS = 2048
"""A model that is loaded has room for so many tokens, or its context if that is less."""

_PROCESS_BYTES = 48 << 20
_BYTES_PER_ENTRY = 520
"""Measured: what an engine process takes besides weights and KV cache, and what of that each entry of the vocabulary
adds (llguidance's form of it)."""

_BYTES_PER_WEIGHT = {
    F32: 4.0, F16: 2.0, BF16: 2.0,
    2: 0.5625, 3: 0.625, 12: 0.578125,  # Q4_0, Q4_1, Q4_K
    6: 0.6875, 7: 0.75, 13: 0.703125,  # Q5_0, Q5_1, Q5_K
    8: 1.0625, 14: 0.8203125,  # Q8_0, Q6_K
}  # fmt: skip
"""By GGUF type: in the internal formats (docs/engine.md)."""


class NotEnoughMemory(Exception):
    """A model does not fit; the message says what it needs, what is free and what to do."""


class MemoryNeed(NamedTuple):
    """Bytes: of the weights as they are kept, of the process beside them, and of one position in the KV cache."""

    weights: int
    working: int
    token: int

    def least(self, context_length: int, kv_bytes: int | None) -> int:
        """Bytes without which the model is not loaded. ``kv_bytes`` None: the KV cache has no size of its own yet."""
        if kv_bytes is None:
            kv_bytes = self.token * min(LEAST_TOKENS, context_length)
        return self.weights + self.working + kv_bytes


def memory_need(model: ModelFile, *, max_rows: int, kv_type: KvType = "f16") -> MemoryNeed:
    """What a model takes in an engine that samples up to ``max_rows`` rows a step."""
    weights = sum(weight.rows * weight.cols * _BYTES_PER_WEIGHT[weight.tensor.ggml_type] for weight in model.weights)
    vocab = model.spec.vocab_size
    logits = 4 * max_rows * vocab
    working = _PROCESS_BYTES + _BYTES_PER_ENTRY * vocab + logits
    return MemoryNeed(int(weights), working, kv_bytes_per_token(model.spec, kv_type))


def require_room(need: MemoryNeed, *, context_length: int, kv_bytes: int | None, free_bytes: int) -> None:
    """Raises `NotEnoughMemory` if a model does not fit into ``free_bytes``."""
    least = need.least(context_length, kv_bytes)
    if least > free_bytes:
        kv = least - need.weights - need.working
        raise NotEnoughMemory(
            f"not enough memory: {size(least)} are needed ({size(need.weights)} for the weights, {size(kv)} for the KV "
            f"cache, {size(need.working)} to work), but {size(free_bytes)} are free; unload another model, give "
            "a smaller --kv-cache, or take a smaller model"
        )


def resident_bytes(pid: int) -> int:
    """Memory that a process has now; 0 if there is none of that id."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(fields.get("VmRSS", "0 kB").split()[0]) << 10


def still_to_take(info: EngineInfo, pid: int) -> int:
    """Bytes that a running engine was promised and has not taken yet."""
    return max(0, info.weight_bytes + info.kv_bytes + _PROCESS_BYTES - resident_bytes(pid))
