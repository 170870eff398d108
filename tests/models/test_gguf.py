"""The GGUF reader against the reference library, and against files that lie."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import bpe_vocabulary, random_tensors, write_gguf, write_model
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile, StringsEnd
from millstream.native import strings_end
from support.real_models import GEMMA, QWEN, SMOLLM2, real_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "small.gguf")


MATRIX_TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ2_0"]


def test_everything_equals_the_reference(tmp_path: Path) -> None:
    tensors = random_tensors(dict.fromkeys(MATRIX_TYPES, (3, 512)) | {"vector": (7,), "cube": (2, 3, 4)})
    kinds = {name: gguf.GGMLQuantizationType[name] for name in MATRIX_TYPES if name != "F32"}
    path = write_gguf(tmp_path / "m.gguf", bpe_vocabulary(**{"a.number": 2.5}), tensors, quantized=kinds)
    reference = gguf.GGUFReader(path)
    with GGUFFile(path) as file:
        assert list(file.tensors) == [tensor.name for tensor in reference.tensors]
        for tensor, wanted in zip(file.tensors.values(), reference.tensors, strict=True):
            assert tensor.shape == tuple(int(size) for size in wanted.shape)
            assert tensor.ggml_type == wanted.tensor_type
            assert tensor.offset == wanted.data_offset
            assert tensor.nbytes == wanted.n_bytes
            assert bytes(file.data(tensor)) == wanted.data.tobytes()
        assert set(file.keys()) == {name for name in reference.fields if not name.startswith("GGUF.")}
        assert file.number("a.number") == reference.fields["a.number"].contents()
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
            assert file.strings(key) == reference.fields[key].contents()
        assert file.integers("tokenizer.ggml.token_type") == reference.fields["tokenizer.ggml.token_type"].contents()


@pytest.mark.parametrize("stem", [SMOLLM2, QWEN, GEMMA])
def test_tensors_of_real_files_lie_side_by_side(stem: str) -> None:
    """Every size is right: each tensor ends where the next begins, up to alignment, and the last ends the file."""
    path = real_model(stem)
    with GGUFFile(path) as file:
        at = None
        for tensor in sorted(file.tensors.values(), key=lambda tensor: tensor.offset):
            assert at in (None, tensor.offset)
            at = -(-(tensor.offset + tensor.nbytes) // 32) * 32
        assert at == -(-path.stat().st_size // 32) * 32


def test_values_of_every_kind(tmp_path: Path) -> None:
    values = {
        "a.int": 7,
        "a.float": 0.5,
        "a.flag": True,
        "a.text": "grüße\0",
        "a.strings": ["x", "", "ünï"],
        "a.integers": [1, -2, 3],
        "a.floats": [0.5, -1.0],
    }
    with GGUFFile(write_gguf(tmp_path / "values.gguf", values)) as file:
        assert file.integer("a.int") == 7
        assert file.number("a.int") == 7.0
        assert file.number("a.float") == 0.5
        assert file.flag("a.flag") is True
        assert file.text("a.text") == "grüße\0"
        assert file.strings("a.strings") == ["x", "", "ünï"]
        assert file.integers("a.integers") == [1, -2, 3]
        assert file.numbers("a.floats") == [0.5, -1.0]
        assert file.integer("absent", 3) == 3
        assert "absent" not in file
        assert file.is_array("a.strings")
        assert not file.is_array("a.int")


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("integer", "a.text"), ("integer", "a.flag"), ("integer", "a.strings"), ("integer", "absent"),
        ("number", "a.flag"), ("flag", "a.int"), ("text", "a.int"), ("strings", "a.int"), ("strings", "a.floats"),
        ("strings", "absent"), ("numbers", "a.strings"), ("integers", "a.floats"),
    ],
)  # fmt: skip
def test_wrong_kinds_are_named(tmp_path: Path, method: str, key: str) -> None:
    values = {"a.int": 7, "a.flag": True, "a.text": "x", "a.strings": ["x"], "a.floats": [0.5]}
    path = write_gguf(tmp_path / "values.gguf", values)
    with GGUFFile(path) as file, pytest.raises(ModelFileError, match=key) as error:
        getattr(file, method)(key)
    assert str(path) in str(error.value)


def test_tensor_bytes(tmp_path: Path) -> None:
    tensors = random_tensors({"w": (3, 32), "v": (5,), "q": (4, 64)})
    kinds = {"q": gguf.GGMLQuantizationType.Q8_0}
    with GGUFFile(write_gguf(tmp_path / "t.gguf", {}, tensors, quantized=kinds)) as file:
        w, q = file.tensors["w"], file.tensors["q"]
        assert (w.shape, w.rows, w.cols) == ((32, 3), 3, 32)
        assert file.tensors["v"].rows == 1
        assert np.array_equal(np.frombuffer(file.data(w), np.float32).reshape(3, 32), tensors["w"])
        assert q.nbytes == 4 * 2 * 34
        assert bytes(file.data(q)) == gguf.quants.quantize(tensors["q"], kinds["q"]).tobytes()
        file.drop_pages()
        assert np.array_equal(np.frombuffer(file.data(w), np.float32).reshape(3, 32), tensors["w"])


def test_closing_while_a_view_is_alive_is_harmless(small: Path) -> None:
    file = GGUFFile(small)
    view = file.data(next(iter(file.tensors.values())))
    file.close()
    assert len(bytes(view)) == view.nbytes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04 some zip", "not a GGUF file"),
        (b"GGUF", "ends inside the header"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
        (struct.pack("<4sIQQ", b"GGUF", 9, 0, 0), "newer millstream"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 60), "claims"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 60, 0), "claims"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1 << 62) + bytes(16), "bytes long"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as error:
        GGUFFile(path)
    assert str(path) in str(error.value)


def _entry(key: bytes, kind: int, payload: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + payload


def _tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    head = struct.pack("<Q", len(name)) + name
    return head + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def _file(entries: list[bytes], tensors: list[bytes], data: bytes = bytes(4096)) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries))
    return head + b"".join(entries) + b"".join(tensors) + data


WALKS = pytest.mark.parametrize("walk", [None, strings_end], ids=["python", "native"])
"""How arrays of strings are stepped over."""


@WALKS
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_file([_entry(b"k", 99, b"")], []), "unknown type 99"),
        (_file([_entry(b"k", 8, struct.pack("<Q", 1 << 61))], []), "ends inside metadata k"),
        (_file([_entry(b"k", 9, struct.pack("<IQ", 8, 1 << 58))], []), "strings in metadata k"),
        (_file([_entry(b"k", 9, struct.pack("<IQ", 8, 300) + b"\xff" * 8)], []), "ends inside metadata k"),
        (_file([_entry(b"k", 9, struct.pack("<IQ", 6, 1 << 60))], []), "numbers in k"),
        (_file([_entry(b"k", 9, struct.pack("<IQ", 9, 1))], []), "unknown type 9"),
        (_file([_entry(b"k", 0, b"\1")] * 2, []), "metadata k appears twice"),
        (_file([_entry(b"\xff", 0, b"\1")], []), "not UTF-8"),
        (_file([_entry(b"general.alignment", 4, struct.pack("<I", 3))], []), "general.alignment"),
        (_file([_entry(b"general.alignment", 4, struct.pack("<I", 0))], []), "general.alignment"),
        (_file([_entry(b"split.count", 2, struct.pack("<H", 3))], []), "split into 3 files"),
        (_file([], [_tensor(b"t", (32, 4), 999, 0)]), "tensor t has the unknown type 999"),
        (_file([], [_tensor(b"t", (33, 4), 2, 0)]), "blocks of 32"),
        (_file([], [_tensor(b"t", (32, 0), 0, 0)]), "impossible shape"),
        (_file([], [_tensor(b"t", (1 << 32, 1 << 32), 0, 0)]), "impossible shape"),
        (_file([], [_tensor(b"t", (1 << 20, 1 << 20), 0, 0)]), "incomplete download"),
        (_file([], [_tensor(b"t", (32,), 0, (1 << 64) - 32)]), "incomplete download"),
        (_file([], [_tensor(b"t", (1,) * 5, 0, 0)]), "5 dimensions"),
        (_file([], [_tensor(b"t", (32,), 0, 0)] * 2), "tensor t appears twice"),
    ],
)
def test_lies_are_found(tmp_path: Path, content: bytes, message: str, walk: StringsEnd | None) -> None:
    path = tmp_path / "lie.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        GGUFFile(path, strings_end=walk)


@WALKS
def test_strings_are_stepped_over(tmp_path: Path, walk: StringsEnd | None) -> None:
    strings = ["", "a", "é" * 200, ""]
    path = write_gguf(tmp_path / "strings.gguf", {"some": strings, "after": 7})
    with GGUFFile(path, strings_end=walk) as file:
        assert file.strings("some") == strings
        assert file.integer("after") == 7


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(0, 9), st.data())
def test_the_core_finds_where_strings_end(strings: list[bytes], before: int, data: st.DataObject) -> None:
    raw = bytes(before) + b"".join(struct.pack("<Q", len(each)) + each for each in strings)
    assert strings_end(raw, before, len(strings)) == len(raw)
    if strings:
        cut = data.draw(st.integers(0, len(raw) - 1))
        assert strings_end(raw[:cut], before, len(strings)) is None
    assert strings_end(raw + b"\xff" * 8, before, len(strings) + 1) is None
    assert strings_end(raw, len(raw) + 1, 1) is None


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        GGUFFile(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="is a directory"):
        GGUFFile(tmp_path)


@WALKS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_truncation_is_refused(
    small: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, walk: StringsEnd | None
) -> None:
    content = small.read_bytes()
    with GGUFFile(small) as file:
        end = max(tensor.offset + tensor.nbytes for tensor in file.tensors.values())
    cut = data.draw(st.integers(0, end - 1))
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(content[:cut])
    with pytest.raises(ModelFileError):
        GGUFFile(path, strings_end=walk)
