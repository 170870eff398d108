"""Hyper-parameters that the families share, read from GGUF metadata with bounds that keep hostile files harmless."""

from __future__ import annotations

from millstream.models.gguf import GGUFFile

_MAX_LAYERS = 1024
_MAX_WIDTH = 1 << 20
_MAX_CONTEXT = 1 << 30

# Present in a file, any of these changes what the model computes; no family here implements them.
_UNSUPPORTED = (
    "attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "attention.temperature_length",
    "attention.temperature_scale", "embedding_scale", "residual_scale", "logit_scale", "interleave_moe_layer_step",
    "leading_dense_block_count",
)  # fmt: skip


class Hyper:
    """Metadata of one architecture: ``hyper.integer("block_count")`` reads ``llama.block_count``.

    Attributes:
        layers, hidden, context_length: as in `ModelSpec`.
    """

    def __init__(self, file: GGUFFile, *, allowed: frozenset[str] = frozenset()) -> None:
        self.file = file
        self.prefix = file.text("general.architecture")
        self.layers = self.bounded("block_count", _MAX_LAYERS)
        self.hidden = self.bounded("embedding_length", _MAX_WIDTH)
        self.context_length = self.bounded("context_length", _MAX_CONTEXT)
        self._refuse_unsupported(allowed)

    def key(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def has(self, name: str) -> bool:
        return self.key(name) in self.file

    def integer(self, name: str, default: int | None = None) -> int:
        return self.file.integer(self.key(name), default)

    def text(self, name: str, default: str | None = None) -> str:
        return self.file.text(self.key(name), default)

    def number(self, name: str, default: float | None = None) -> float:
        return self.file.number(self.key(name), default)

    def softcap(self, name: str) -> float:
        """A soft cap: a finite number, 0 (none) if the file has no such entry."""
        return self.positive(name) if self.has(name) and self.number(name) != 0.0 else 0.0

    def bounded(self, name: str, limit: int, default: int | None = None) -> int:
        """An integer of 1 to ``limit``."""
        value = self.integer(name, default)
        if not 1 <= value <= limit:
            self.file.fail(f"metadata {self.key(name)} is {value}; 1 to {limit} was expected")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self.number(name, default)
        if not 0.0 < value < 1e30:
            self.file.fail(f"metadata {self.key(name)} is {value}; a number above zero was expected")
        return value

    def per_layer(self, name: str, default: list[int] | None = None) -> list[int]:
        """An integer of 1 to 2^20 for each layer, from one number or from an array of them."""
        key = self.key(name)
        if self.file.is_array(key):
            values = self.file.integers(key)
            if len(values) < self.layers:
                self.file.fail(f"metadata {key} has {len(values)} entries for {self.layers} layers")
            values = values[: self.layers]
        elif default is not None and key not in self.file:
            values = default
        else:
            values = [self.integer(name)] * self.layers
        if not all(1 <= value <= _MAX_WIDTH for value in values):
            self.file.fail(f"metadata {key} has a value outside 1 to {_MAX_WIDTH}; such layers are not supported")
        return values

    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        tensor = self.file.tensors.get("token_embd.weight")
        if tensor is None:
            self.file.fail("tensor token_embd.weight is missing; the file holds no complete model")
        return tensor.rows

    def head_dim(self, heads: list[int]) -> int:
        """Width of a head; keys and values must have the same."""
        if not self.has("attention.key_length") and self.hidden % heads[0]:
            self.file.fail(f"{heads[0]} heads do not divide the embedding length {self.hidden}")
        keys = self.bounded("attention.key_length", _MAX_WIDTH, max(self.hidden // heads[0], 1))
        values = self.bounded("attention.value_length", _MAX_WIDTH, keys)
        if keys != values:
            self.file.fail(f"keys have {keys} dimensions and values {values}; different widths are not supported")
        return keys

    def rope_dim(self, head_dim: int) -> int:
        """Dimensions of a head that are rotated."""
        value = self.bounded("rope.dimension_count", _MAX_WIDTH, head_dim)
        if value > head_dim or value % 2:
            self.file.fail(f"metadata {self.key('rope.dimension_count')} is {value} for heads of {head_dim} dimensions")
        return value

    def _refuse_unsupported(self, allowed: frozenset[str]) -> None:
        for name in _UNSUPPORTED:
            if name not in allowed and self.has(name):
                self.file.fail(f"has {self.key(name)}, which changes the result and is not supported yet")
        if self.integer("expert_count", 0) > 0:
            self.file.fail("is a mixture of experts, which is not supported yet")
        if not self.file.flag(self.key("attention.causal"), True):
            self.file.fail("is an encoder (attention is not causal), which is not supported")
        if self.file.flag(self.key("use_parallel_residual"), False):
            self.file.fail(f"has {self.key('use_parallel_residual')}, which is not supported yet")
