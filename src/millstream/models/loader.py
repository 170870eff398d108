"""From a model file to the tensors of the native core, every name, type and shape checked on the way.

Only the engine process fills the native core; `load_model_file` itself needs nothing native, so the API process uses it
to refuse a bad file before an engine is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from millstream.models.families import find_family
from millstream.models.families.base import Family, expected_shapes
from millstream.models.ggml import MATRIX_TYPES, TENSOR_TYPES, VECTOR_TYPES, names
from millstream.models.gguf import GGUFFile, StringsEnd, Tensor
from millstream.models.spec import ModelSpec, TensorSlot

if TYPE_CHECKING:
    from millstream.native._core import Model


class Weight(NamedTuple):
    """One tensor for `Model.load`; vectors have one row."""

    slot: TensorSlot
    tensor: Tensor
    rows: int
    cols: int


class ModelFile:
    """An open model file whose description is complete and whose tensors are all there. Close it after use."""

    def __init__(self, file: GGUFFile, spec: ModelSpec, weights: tuple[Weight, ...]) -> None:
        self.file = file
        self.spec = spec
        self.weights = weights

    def tensors(self) -> Iterator[tuple[int, str, int, int, int, memoryview]]:
        """(layer, slot, ggml type, rows, columns, bytes) of every tensor, in the order of the network, as `Model.load`
        takes them. The bytes are the file's pages."""
        for slot, tensor, rows, cols in self.weights:
            yield slot.layer, slot.slot, tensor.ggml_type, rows, cols, self.file.data(tensor)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_model_file(path: str | os.PathLike[str], *, strings_end: StringsEnd | None = None) -> ModelFile:
    """Open a GGUF file (see there) and check that it holds a model that can run. Raises `ModelFileError`."""
    file = GGUFFile(path, strings_end=strings_end)
    try:
        family = find_family(file)
        spec = family.build_spec(file)
        return ModelFile(file, spec, _match(file, family, spec))
    except BaseException:
        file.close()
        raise


def build_native(
    model_file: ModelFile,
    *,
    kv_blocks: int,
    max_tokens: int,
    max_rows: int,
    threads: int = 0,
    kv_type: Literal["f16", "int8"] = "f16",
    activations: Literal["int12", "int8"] = "int12",
) -> Model:
    """A native model filled with the file's weights; the file's pages are no longer resident afterwards.

    Sizes are those of `millstream.native._core.Model`. Raises `ModelFileError`; ValueError or MemoryError from the core
    means that the sizes do not fit the machine.
    """
    from millstream.native import _core

    model = _core.Model(
        model_file.spec,
        kv_blocks=kv_blocks,
        max_tokens=max_tokens,
        max_rows=max_rows,
        threads=threads,
        kv_type=kv_type,
        activations=activations,
    )
    model.load(model_file.tensors(), mapped=True)
    model_file.file.drop_pages()
    return model


def _match(file: GGUFFile, family: Family, spec: ModelSpec) -> tuple[Weight, ...]:
    """Find the tensor of every slot, and refuse tensors that go nowhere: ignoring one would change the model."""
    weights: list[Weight] = []
    used: set[str] = set(family.consumed)
    for slot, rows, cols in expected_shapes(spec):
        name = family.weights[slot.slot].gguf.format(n=slot.layer)
        tensor = file.tensors.get(name)
        if tensor is None:
            file.fail(f"tensor {name} is missing; the file holds no complete {family.architecture} model")
        _check(file, tensor, rows, cols)
        weights.append(Weight(slot, tensor, rows, cols))
        used.add(name)
    surplus = [name for name in file.tensors if name not in used]
    if surplus:
        file.fail(
            f"tensor {surplus[0]} ({len(surplus)} in all) is no part of the {family.architecture} models that are "
            "supported; without it the model would give wrong answers"
        )
    return tuple(weights)


def _check(file: GGUFFile, tensor: Tensor, rows: int, cols: int) -> None:
    if (tensor.rows, tensor.cols) != (rows, cols):
        wanted = [cols] if rows == 1 else [cols, rows]
        file.fail(f"tensor {tensor.name} has the shape {list(tensor.shape)}; the metadata asks for {wanted}")
    supported = VECTOR_TYPES if rows == 1 else MATRIX_TYPES
    if tensor.ggml_type not in supported:
        file.fail(
            f"tensor {tensor.name} has type {TENSOR_TYPES[tensor.ggml_type].name}, which this version cannot run; "
            f"supported: {names(supported)}"
        )
