"""What a model's description tells of memory and work: the KV cache, the context, the cost of attention."""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.engine.config import KvType
from millstream.models.spec import LayerSpec, ModelSpec
from millstream.scheduler.pace import TokenCost

DEFAULT_KV_BYTES = 512 << 20

_ATTENTION_PRODUCT = 2.5
"""Time of a product in attention (floats, with a key or value of its own for every position) to one with a quantised
weight in a chunk of 16 rows or more: 2.2 to 2.7 measured (docs/performance.md)."""


def kv_bytes_per_token(spec: ModelSpec, kv_type: KvType = "f16") -> int:
    """Bytes of keys and values that one position takes over all layers; int8 has a scale of 4 bytes for each 32."""

    def head_bytes(dim: int) -> int:
        return 2 * dim if kv_type == "f16" else dim + 4 * -(-dim // 32)

    return sum(2 * layer.kv_heads * head_bytes(layer.head_dim) for layer in spec.layers)


def available_memory() -> int:
    """Bytes that can be allocated without swapping, as the kernel estimates it, within the limits of the process's
    control groups (those of a container)."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) << 10, *_group_rooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))
    raise OSError("/proc/meminfo has no MemAvailable line")


def _group_rooms(membership: Path, root: Path) -> list[int]:
    """What the limit of each control group (version 2) around this process leaves; file pages count as free."""
    rooms = [sys.maxsize]
    try:
        own = next(line[3:].strip() for line in membership.read_text().splitlines() if line.startswith("0::"))
        inner = root / own.lstrip("/")
        for group in (inner, *inner.parents):
            if (group / "memory.max").is_file() and (limit := (group / "memory.max").read_text().strip()) != "max":
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                used = int((group / "memory.current").read_text()) - int(stat["inactive_file"])
                rooms.append(max(0, int(limit) - used))
    except (OSError, StopIteration, ValueError, KeyError):
        pass
    return rooms


class WrongContext(ValueError):
    """A context is asked for that the model does not have; the message says which it has."""


def context_of(spec: ModelSpec, asked: int | None) -> int:
    """The context length, in tokens, of an engine that is asked for ``asked`` (None: the model's own).

    Raises:
        WrongContext: it is none, or longer than the model's.
    """
    if asked is not None and not 0 < asked <= spec.context_length:
        raise WrongContext(f"the context length must be between 1 and the model's {spec.context_length} tokens")
    return asked or spec.context_length


def plan_kv(
    spec: ModelSpec,
    *,
    block_size: int,
    context_length: int | None,
    kv_bytes: int | None,
    free_bytes: int,
    kv_type: KvType = "f16",
) -> tuple[int, int]:
    """Number of KV blocks and the context length they allow. ``free_bytes``: what the weights leave; a KV cache whose
    size is not given takes at most half of that.

    Raises:
        ValueError: the budget does not hold a single block, or the context asked for is longer than the model's.
    """
    context = context_of(spec, context_length)
    per_block = kv_bytes_per_token(spec, kv_type) * block_size
    if kv_bytes is None:
        full_context = -(-context // block_size) * per_block
        kv_bytes = min(max(DEFAULT_KV_BYTES, full_context), max(free_bytes, 0) // 2)
    blocks = kv_bytes // per_block
    if blocks < 1:
        raise ValueError(
            f"a KV cache of {kv_bytes} bytes does not hold one block of {block_size} tokens ({per_block} bytes)"
        )
    return blocks, min(context, blocks * block_size)


def token_cost(spec: ModelSpec) -> TokenCost:
    """What a token costs by its position. The output head does not count: of a prompt, one row needs it."""
    weights = sum(_products(layer, spec.hidden) for layer in spec.layers)
    windows = [layer.window for layer in spec.layers if layer.window]

    def per_position(*, windowed: bool) -> float:
        """Keys and values: two products for each dimension of each head."""
        heads = sum(layer.heads * layer.head_dim for layer in spec.layers if bool(layer.window) is windowed)
        return _ATTENTION_PRODUCT * 2 * heads / weights

    return TokenCost(
        per_position=per_position(windowed=False),
        per_windowed=per_position(windowed=True),
        window=max(windows, default=0),
    )


def _products(layer: LayerSpec, hidden: int) -> int:
    """Products of a token with a layer's weights."""
    return hidden * (2 * layer.heads + 2 * layer.kv_heads) * layer.head_dim + 3 * hidden * layer.intermediate
