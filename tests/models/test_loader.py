"""Filling the native core from a file."""

from __future__ import annotations

import sys
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
from support.real_models import SMOLLM2, real_model


class RecordingModel:
    """Stands for the native model: keeps what it was given."""

    def __init__(self, spec: ModelSpec, **sizes: int) -> None:
        self.spec, self.sizes = spec, sizes
        self.tensors: dict[tuple[int, str], tuple[int, int, int, bytes]] = {}
        self.finished = False

    def set_tensor(self, layer: int, slot: str, ggml_type: int, rows: int, cols: int, data: Any) -> None:
        assert (layer, slot) not in self.tensors
        self.tensors[layer, slot] = (ggml_type, rows, cols, bytes(data))

    def finish(self) -> None:
        self.finished = True


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
        assert model.finished
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


def test_pages_are_given_back_while_loading() -> None:
    path = real_model(SMOLLM2)
    with load_model_file(path) as model:
        largest = max(weight.tensor.nbytes for weight in model.weights)
        for number, (*_, data) in enumerate(model.tensors()):
            touched = bytes(data[:: 1 << 12])
            assert len(touched) > 0
            if number % 20 == 0:
                # The system maps a little more around each page that is touched.
                assert _resident_bytes(path) < largest + (16 << 20)
        model.file.drop_pages()
        assert _resident_bytes(path) == 0
