"""Reading GGUF files (versions 2 and 3) through a memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file is untrusted: every count, length, type,
offset and size is checked against the file before it is used, and whatever is wrong becomes a `ModelFileError`. Arrays
stay in the file until they are asked for, so opening a model with a vocabulary of 262,144 entries takes milliseconds.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

from millstream.models.errors import ModelFileError
from millstream.models.ggml import TENSOR_TYPES

_SCALAR_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEY_BYTES = 65535
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
_SIZE_LIMIT = 1 << 63

Scalar = int | float | bool | str

StringsEnd = Callable[[mmap.mmap, int, int], int | None]
"""`millstream.native.strings_end`: what steps over a large vocabulary in no time, where the native core is loaded."""


class Tensor(NamedTuple):
    """One entry of the tensor directory.

    ``shape`` is in ggml order: the first number is the contiguous dimension (the inputs of a matrix). ``offset`` is
    absolute in the file.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    nbytes: int

    @property
    def cols(self) -> int:
        return self.shape[0]

    @property
    def rows(self) -> int:
        rows = 1
        for size in self.shape[1:]:
            rows *= size
        return rows


class _Array(NamedTuple):
    """Where an array lies: its items start at ``offset``; checked to end inside the file at ``end``."""

    item_type: int
    length: int
    offset: int
    end: int


class GGUFFile:
    """An open GGUF file: typed access to metadata, the tensor directory, and the bytes of tensors.

    ``strings_end`` None: the same is done in Python.

    Raises:
        ModelFileError: the file is missing, is not GGUF, is damaged, or is of a kind that is not supported.
    """

    def __init__(self, path: str | os.PathLike[str], *, strings_end: StringsEnd | None = None) -> None:
        self.path = Path(path)
        self._map = _map_file(self.path)
        self._values: dict[str, Scalar | _Array] = {}
        self.tensors: dict[str, Tensor] = {}
        try:
            _Parser(self.path, self._map, strings_end).parse(self._values, self.tensors)
            if self.integer("split.count", 1) > 1:
                self.fail(
                    f"is part of a model split into {self.integer('split.count', 1)} files, which is not supported; "
                    "merge the parts with `llama-gguf-split --merge`"
                )
        except BaseException:
            self.close()
            raise

    def fail(self, problem: str) -> NoReturn:
        """Raise `ModelFileError` with this file's name before ``problem``."""
        raise ModelFileError(f"{self.path}: {problem}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def keys(self) -> Iterator[str]:
        """Names of all metadata entries, in file order."""
        return iter(self._values)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; without ``default`` the key must be there."""
        value = self._scalar(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"metadata {key} should be an integer, not {value!r:.80}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number of any kind; without ``default`` the key must be there."""
        value = self._scalar(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"metadata {key} should be a number, not {value!r:.80}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """A truth value; without ``default`` the key must be there."""
        value = self._scalar(key, default)
        if not isinstance(value, bool):
            self.fail(f"metadata {key} should be true or false, not {value!r:.80}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without ``default`` the key must be there."""
        value = self._scalar(key, default)
        if not isinstance(value, str):
            self.fail(f"metadata {key} should be a string, not {value!r:.80}")
        return value

    def is_array(self, key: str) -> bool:
        return isinstance(self._values.get(key), _Array)

    def strings(self, key: str) -> list[str]:
        """An array of strings (UTF-8)."""
        array = self._array(key)
        if array.item_type != _STRING:
            self.fail(f"metadata {key} should be an array of strings")
        raw = self._map[array.offset : array.end]
        length_at = struct.Struct("<Q").unpack_from
        out, at = [], 0
        try:
            for _ in range(array.length):
                start = at + 8
                at = start + length_at(raw, at)[0]
                out.append(raw[start:at].decode())
        except UnicodeDecodeError:
            self.fail(f"string {len(out)} of metadata {key} is not UTF-8 text; the file is damaged: download it again")
        return out

    def numbers(self, key: str) -> list[float]:
        """An array of numbers of any kind."""
        array = self._array(key)
        if array.item_type == _STRING:
            self.fail(f"metadata {key} should be an array of numbers")
        code = _SCALAR_FORMATS[array.item_type]
        return list(struct.unpack(f"<{array.length}{code}", self._map[array.offset : array.end]))

    def integers(self, key: str) -> list[int]:
        """An array of whole numbers."""
        array = self._array(key)
        if _SCALAR_FORMATS.get(array.item_type, "?") not in "BbHhIiQq":
            self.fail(f"metadata {key} should be an array of integers")
        return [int(value) for value in self.numbers(key)]

    def data(self, tensor: Tensor) -> memoryview:
        """The bytes of a tensor, in the file's pages: valid until `close`."""
        return memoryview(self._map)[tensor.offset : tensor.offset + tensor.nbytes]

    def drop_pages(self) -> None:
        """Give the file's pages back to the system; they are read again when touched."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file. Views handed out by `data` must be gone by then (else the map lives until they are)."""
        try:
            self._map.close()
        except BufferError:
            self._map.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _scalar(self, key: str, default: Scalar | None) -> Scalar:
        value = self._values.get(key, default)
        if value is None:
            self.fail(f"metadata {key} is missing; the file is incomplete or was made by an old converter")
        if isinstance(value, _Array):
            self.fail(f"metadata {key} is an array where one value is expected")
        return value

    def _array(self, key: str) -> _Array:
        value = self._values.get(key)
        if value is None:
            self.fail(f"metadata {key} is missing; the file is incomplete or was made by an old converter")
        if not isinstance(value, _Array):
            self.fail(f"metadata {key} should be an array")
        return value


def _map_file(path: Path) -> mmap.mmap:
    """Map a file for reading, after the checks that can be made without reading it."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ModelFileError(f"{path}: the file is empty; download the model again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path}: is a directory; name the .gguf file in it") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read: {error}") from None


class _Parser:
    """One pass over header, metadata and tensor directory. ``_at`` is the position of the next unread byte."""

    def __init__(self, path: Path, data: mmap.mmap, strings_end: StringsEnd | None) -> None:
        self._path = path
        self._strings_end = strings_end
        self._data = data
        self._size = len(data)
        self._at = 0

    def parse(self, values: dict[str, Scalar | _Array], tensors: dict[str, Tensor]) -> None:
        """Fill ``values`` and ``tensors``."""
        self._check_magic()
        tensor_count, value_count = self._unpack("<QQ", "the header")
        for number in range(self._count(value_count, 13, "metadata entries")):
            key = self._string(f"the name of metadata entry {number}", _MAX_KEY_BYTES)
            if key in values:
                self._fail(f"metadata {key} appears twice")
            values[key] = self._value(key)
        found = [self._tensor(number) for number in range(self._count(tensor_count, 24, "tensors"))]
        base = self._data_start(values)
        for tensor in found:
            if tensor.name in tensors:
                self._fail(f"tensor {tensor.name} appears twice")
            tensors[tensor.name] = self._placed(tensor, base)

    def _check_magic(self) -> None:
        if self._data[:4] != b"GGUF":
            raise ModelFileError(f"{self._path}: not a GGUF file (it begins with {self._data[:4]!r})")
        self._at = 4
        (version,) = self._unpack("<I", "the header")
        if version & 0xFFFF == 0 and version:
            raise ModelFileError(
                f"{self._path}: is a big-endian GGUF file, which is not supported; get the little-endian file or "
                "convert it with `gguf-convert-endian`"
            )
        if version not in (2, 3):
            raise ModelFileError(
                f"{self._path}: has GGUF version {version}; versions 2 and 3 are supported. Get a newer conversion of "
                "the model" + ("." if version < 2 else ", or a newer millstream.")
            )

    def _fail(self, problem: str) -> NoReturn:
        raise ModelFileError(f"{self._path}: the file is damaged: {problem}; download it again")

    def _need(self, nbytes: int, what: str) -> None:
        if nbytes > self._size - self._at:
            self._fail(f"it ends inside {what} (at byte {self._at}, {nbytes} more needed, {self._size} in all)")

    def _unpack(self, form: str, what: str) -> tuple[int, ...]:
        nbytes = struct.calcsize(form)
        self._need(nbytes, what)
        out = struct.unpack_from(form, self._data, self._at)
        self._at += nbytes
        return out

    def _count(self, count: int, least_bytes: int, what: str) -> int:
        if count * least_bytes > self._size - self._at:
            self._fail(f"it claims {count} {what}, more than fit in its {self._size} bytes")
        return count

    def _string(self, what: str, limit: int | None = None) -> str:
        (length,) = self._unpack("<Q", what)
        if limit is not None and length > limit:
            self._fail(f"{what} is {length} bytes long")
        self._need(length, what)
        start, self._at = self._at, self._at + length
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError:
            if limit is not None:
                self._fail(f"{what} is not UTF-8 text")
            return self._data[start : self._at].decode("utf-8", "replace")

    def _value(self, key: str) -> Scalar | _Array:
        (kind,) = self._unpack("<I", f"metadata {key}")
        if kind == _STRING:
            return self._string(f"metadata {key}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALAR_FORMATS:
            self._fail(f"metadata {key} has the unknown type {kind}")
        return self._unpack("<" + _SCALAR_FORMATS[kind], f"metadata {key}")[0]

    def _array(self, key: str) -> _Array:
        kind, count = self._unpack("<IQ", f"metadata {key}")
        start = self._at
        if kind == _STRING:
            self._count(count, 8, f"strings in metadata {key}")
            self._skip_strings(key, count)
        elif kind in _SCALAR_FORMATS:
            self._at += self._count(count, struct.calcsize("<" + _SCALAR_FORMATS[kind]), f"numbers in {key}") * (
                struct.calcsize("<" + _SCALAR_FORMATS[kind])
            )
        else:
            self._fail(f"metadata {key} is an array of the unknown type {kind}")
        return _Array(kind, count, start, self._at)

    def _skip_strings(self, key: str, count: int) -> None:
        """Step over strings, whose lengths form a chain; this loop is the cost of opening a large vocabulary."""
        if self._strings_end is not None and (end := self._strings_end(self._data, self._at, count)) is not None:
            self._at = end
            return
        data, at, last = self._data, self._at, self._size - 8
        length_at = struct.Struct("<Q").unpack_from
        for number in range(count):
            if at > last:
                self._fail(f"it ends inside metadata {key}, before string {number} of {count}")
            at += 8 + length_at(data, at)[0]
        if at > self._size:
            self._fail(f"it ends inside metadata {key}, in string {count - 1} of {count}")
        self._at = at

    def _tensor(self, number: int) -> Tensor:
        """One directory entry, its offset still relative to the data section."""
        name = self._string(f"the name of tensor {number}", _MAX_KEY_BYTES)
        (dimensions,) = self._unpack("<I", f"tensor {name}")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            self._fail(f"tensor {name} has {dimensions} dimensions")
        shape = self._unpack(f"<{dimensions}Q", f"tensor {name}")
        ggml_type, offset = self._unpack("<IQ", f"tensor {name}")
        return Tensor(name, shape, ggml_type, offset, 0)

    def _data_start(self, values: dict[str, Scalar | _Array]) -> int:
        alignment = values.get("general.alignment", 32)
        if (
            isinstance(alignment, bool)
            or not isinstance(alignment, int)
            or not 0 < alignment <= _MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            self._fail(f"general.alignment is {alignment!r:.80}, not a small power of two")
        return -(-self._at // alignment) * alignment

    def _placed(self, tensor: Tensor, base: int) -> Tensor:
        """The tensor with its absolute offset and size, both checked against the file."""
        name, shape, ggml_type, offset, _ = tensor
        kind = TENSOR_TYPES.get(ggml_type)
        if kind is None:
            raise ModelFileError(
                f"{self._path}: tensor {name} has the unknown type {ggml_type}; it may need a newer millstream"
            )
        elements = 1
        for size in shape:
            elements *= size
        if elements == 0 or elements >= _SIZE_LIMIT:
            self._fail(f"tensor {name} has the impossible shape {list(shape)}")
        if shape[0] % kind.block:
            self._fail(
                f"tensor {name} has rows of {shape[0]} values, but type {kind.name} stores blocks of {kind.block}"
            )
        nbytes = elements // kind.block * kind.nbytes
        if base + offset + nbytes > self._size:
            self._fail(
                f"tensor {name} should end at byte {base + offset + nbytes}, but the file has {self._size} bytes "
                "(an incomplete download?)"
            )
        return Tensor(name, shape, ggml_type, base + offset, nbytes)
