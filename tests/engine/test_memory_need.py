"""What fits, and what is left for the next model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.engine.memory import (
    MemoryNeed,
    NotEnoughMemory,
    memory_need,
    require_room,
    resident_bytes,
    still_to_take,
)
from millstream.engine.protocol import EngineInfo
from millstream.engine.sizing import _group_rooms
from millstream.models.loader import build_native, load_model_file
from support.tiny_models import TYPES, build_tiny_model

NEED = MemoryNeed(weights=1000, working=100, token=2)


def info(**sizes: int) -> EngineInfo:
    return EngineInfo("m", 1, 1, 1, 32, "none", 1, **sizes)


def test_a_model_fits_with_a_small_context_or_with_the_cache_that_was_asked_for() -> None:
    require_room(NEED, context_length=100_000, kv_bytes=None, free_bytes=1100 + 2 * 2048)
    require_room(NEED, context_length=10, kv_bytes=None, free_bytes=1100 + 2 * 10)
    for context, kv, free in ((100_000, None, 1100 + 2 * 2048 - 1), (10, None, 1119), (10, 500, 1599)):
        with pytest.raises(NotEnoughMemory, match="not enough memory"):
            require_room(NEED, context_length=context, kv_bytes=kv, free_bytes=free)
    require_room(NEED, context_length=10, kv_bytes=500, free_bytes=1600)


@pytest.mark.parametrize("types", TYPES)
def test_weights_take_what_is_told_of_each_type(types: str, tmp_path: Path) -> None:
    """All but the rows that fill the last tile of the vocabulary."""
    with load_model_file(build_tiny_model(tmp_path / "m.gguf", types=types)) as file:
        need = memory_need(file, max_rows=1)
        taken = build_native(file, kv_blocks=1, max_tokens=1, max_rows=1, threads=1).weight_bytes
        vocab, hidden = file.spec.vocab_size, file.spec.hidden
    filling = -vocab % 16 / vocab
    tables = vocab * hidden * 4 * 2
    assert need.weights <= taken <= need.weights + filling * tables


def test_what_an_engine_has_taken_counts_no_more() -> None:
    own = resident_bytes(os.getpid())
    assert own > 10 << 20
    assert still_to_take(info(weight_bytes=own // 2), os.getpid()) < own
    assert still_to_take(info(weight_bytes=1, kv_bytes=3 * own), os.getpid()) >= own
    nobody = 1 << 30
    assert resident_bytes(nobody) == 0
    assert still_to_take(info(kv_bytes=500), nobody) > 500


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("1:cpu:/x\n0::/outer/inner\n")
    inner = tmp_path / "root" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    outer = inner.parent
    (outer / "memory.max").write_text("1000\n")
    (outer / "memory.current").write_text("700\n")
    (outer / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert min(_group_rooms(membership, tmp_path / "root")) == 1000 - 550
    (outer / "memory.stat").write_text("nonsense\n")
    assert min(_group_rooms(membership, tmp_path / "root")) > 1 << 60
    assert min(_group_rooms(tmp_path / "none", tmp_path)) > 1 << 60
