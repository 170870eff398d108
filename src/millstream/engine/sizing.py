"""How large the KV cache and the context become."""

from __future__ import annotations

from millstream.engine.config import KvType
from millstream.models.spec import ModelSpec

DEFAULT_KV_BYTES = 512 << 20


def kv_bytes_per_token(spec: ModelSpec, kv_type: KvType = "f16") -> int:
    """Bytes of keys and values that one position takes over all layers; int8 has a scale of 4 bytes for each 32."""

    def head_bytes(dim: int) -> int:
        return 2 * dim if kv_type == "f16" else dim + 4 * -(-dim // 32)

    return sum(2 * layer.kv_heads * head_bytes(layer.head_dim) for layer in spec.layers)


def available_memory() -> int:
    """Bytes that can be allocated without swapping, as the kernel estimates it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no MemAvailable line")


def plan_kv(
    spec: ModelSpec,
    *,
    block_size: int,
    context_length: int | None,
    kv_bytes: int | None,
    free_bytes: int,
    kv_type: KvType = "f16",
) -> tuple[int, int]:
    """Number of KV blocks and the context length they allow.

    Raises:
        ValueError: the budget does not hold a single block, or the context asked for is longer than the model's.
    """
    if context_length is not None and not 0 < context_length <= spec.context_length:
        raise ValueError(f"the context length must be between 1 and the model's {spec.context_length} tokens")
    context = context_length or spec.context_length
    per_block = kv_bytes_per_token(spec, kv_type) * block_size
    if kv_bytes is None:
        full_context = -(-context // block_size) * per_block
        kv_bytes = min(max(DEFAULT_KV_BYTES, full_context), free_bytes // 2)
    blocks = kv_bytes // per_block
    if blocks < 1:
        raise ValueError(
            f"a KV cache of {kv_bytes} bytes does not hold one block of {block_size} tokens ({per_block} bytes)"
        )
    return blocks, min(context, blocks * block_size)
