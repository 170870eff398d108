"""Filling the native core from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gguf_files import write_model

from millstream import native
from millstream.models.families.base import expected_shapes
from millstream.models.loader import build_native, load_model_file
from millstream.models.spec import ModelSpec
from millstream.native import _core
from support.real_models import SMOLLM2, real_model


class RecordingModel:
    """Stands for the native model: keeps what it was given."""

    def __init__(self, spec: ModelSpec, **sizes: int) -> None:
        self.spec, self.sizes = spec, sizes
        self.tensors: dict[tuple[int, str], tuple[int, int, int, bytes]] = {}

    def load(self, tensors: Iterable[tuple[int, str, int, int, int, Any]], *, mapped: bool) -> None:
        assert mapped
        for layer, slot, ggml_type, rows, cols, data in tensors:
            assert (layer, slot) not in self.tensors
            self.tensors[layer, slot] = (ggml_type, rows, cols, bytes(data))


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("millstream.native._core")
    module.Model = RecordingModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(native, "_core", module, raising=False)


@pytest.mark.usefixtures("core")
def test_every_tensor_reaches_the_core(tmp_path: Path) -> None:
    with load_model_file(write_model(tmp_path / "m.gguf", "gemma3")) as file:
        model: Any = build_native(file, kv_blocks=4, max_tokens=8, max_rows=2, threads=1)
        sizes = {"kv_blocks": 4, "max_tokens": 8, "max_rows": 2, "threads": 1}
        assert model.sizes == {**sizes, "kv_type": "f16", "activations": "int12"}
        assert {(slot.layer, slot.slot) for slot, _, _ in expected_shapes(file.spec)} == set(model.tensors)
        for ggml_type, rows, cols, data in model.tensors.values():
            assert ggml_type == 0
            assert np.isfinite(np.frombuffer(data, np.float32).reshape(rows, cols)).all()


def _resident_bytes(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            inside = line.endswith(path.name)
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_pages_are_given_back_as_they_are_read() -> None:
    path = real_model(SMOLLM2)
    resident = []
    with load_model_file(path) as model:
        for mapped in (False, True):
            core = _core.Model(model.spec, kv_blocks=4, max_tokens=8, max_rows=2, threads=2)
            model.file.drop_pages()
            core.load(model.tensors(), mapped=mapped)
            resident.append(_resident_bytes(path) / path.stat().st_size)
    assert resident[0] > 0.5
    assert resident[1] < 0.2  # the system maps some pages around each that is read


def test_no_page_of_the_file_stays_resident() -> None:
    path = real_model(SMOLLM2)
    with load_model_file(path) as model:
        touched = [bytes(data[:: 1 << 12]) for *_, data in model.tensors()]
        assert sum(map(len, touched)) << 12 > path.stat().st_size // 2
        assert _resident_bytes(path) > path.stat().st_size // 2
        build_native(model, kv_blocks=4, max_tokens=8, max_rows=2, threads=2)
        assert _resident_bytes(path) == 0
