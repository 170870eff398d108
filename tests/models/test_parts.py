"""Long texts in parts: the same tokens as the whole text, and no part that is too long."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

from millstream.ir.errors import ApiError
from millstream.models import tokenizer as tokenizer_module
from millstream.models.gguf import GGUFFile
from millstream.models.parts import PART, WORD_ENDS, parts, word_ends
from millstream.models.pretokenizers import PRE_TOKENIZERS, build_normalizer, build_pre_tokenizer
from millstream.models.tokenizer import GGUFTokenizer
from models.gguf_files import bpe_vocabulary, spm_vocabulary, write_model
from support.real_models import GEMMA, QWEN, SMOLLM2, real_model

PIECES = st.sampled_from(
    [
        *WORD_ENDS,
        *"aZé日'’0½²_-/<(~",
        "  ",
        "\n\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "e\u0301",
        "word",
        "東京",
        "1234",
        "²a",
        "\u00a0",
    ]
)
TEXT = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=30))


def cut(text: str, size: int) -> list[str]:
    return list(parts(text, WORD_ENDS, part=size, longest=10_000))


@settings(max_examples=2 * settings.default.max_examples)
@given(TEXT, st.integers(0, 5))
def test_every_pre_tokenizer_cuts_there_whatever_is_around(text: str, size: int) -> None:
    divided = cut(text, size)
    assert "".join(divided) == text
    for rule in set(PRE_TOKENIZERS.values()):
        normalizer, cutter = build_normalizer(rule), build_pre_tokenizer(rule)

        def words(piece: str, normalizer: Any = normalizer, cutter: PreTokenizer = cutter) -> list[str]:
            normal = normalizer.normalize_str(piece) if normalizer is not None else piece
            return [word for word, _ in cutter.pre_tokenize_str(normal)]

        assert [word for part in divided for word in words(part)] == words(text), rule


def test_there_is_a_place_in_ordinary_text() -> None:
    assert cut("one two, three. 東京は、日本 4 x", 2) == ["one", " two", ", three", ". 東京は", "、日本", " 4 x"]


@functools.cache
def real_tokenizer(stem: str) -> GGUFTokenizer:
    with GGUFFile(real_model(stem)) as file:
        return GGUFTokenizer(file)


@pytest.mark.parametrize("stem", [SMOLLM2, QWEN, GEMMA])
@settings(max_examples=40, deadline=None)
@given(text=st.lists(TEXT, min_size=1, max_size=5).map(" e.g. <|im_end|>".join))
def test_real_tokenizers_give_the_ids_of_the_whole(stem: str, text: str) -> None:
    tokenizer = real_tokenizer(stem)
    assert tokenizer._word_ends
    whole = tokenizer.encode(text)
    divided = [tokenizer.encode(part) for part in parts(text, tokenizer._word_ends, part=3, longest=10_000)]
    assert [token for part in divided for token in part] == whole


def test_pairs_of_the_vocabulary_are_no_place() -> None:
    assert "." not in word_ends(["e.g"])
    assert word_ends(["1.5", "..a", "_.", "a"]) == WORD_ENDS
    assert word_ends([f"a{end}" for end in WORD_ENDS]) == ""


def tokenizer_of(path: Path, metadata: dict[str, Any]) -> GGUFTokenizer:
    with GGUFFile(write_model(path, **metadata)) as file:
        return GGUFTokenizer(file)


def test_added_tokens_and_space_prefixes_are_minded(tmp_path: Path) -> None:
    vocabulary = bpe_vocabulary()
    vocabulary["tokenizer.ggml.tokens"][-1] = "<tool call>"
    assert " " not in tokenizer_of(tmp_path / "bpe.gguf", vocabulary)._word_ends
    assert tokenizer_of(tmp_path / "spm.gguf", spm_vocabulary())._word_ends == ""
    bare = spm_vocabulary(**{"tokenizer.ggml.add_space_prefix": False})
    assert tokenizer_of(tmp_path / "bare.gguf", bare)._word_ends == WORD_ENDS


@pytest.mark.parametrize("text", ["a" * 30, "1 " * 15, "a. " + "é" * 21, "word " * 4 + "x" * 21])
def test_what_cannot_be_divided_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="more than 20 characters") as caught:
        list(parts(text, WORD_ENDS, part=4, longest=20))
    assert caught.value.status == 413


def test_what_cannot_be_divided_may_be_as_long_as_a_part() -> None:
    assert list(parts("a" * 20, WORD_ENDS, part=4, longest=20)) == ["a" * 20]
    assert list(parts("a" * 20, "", part=4, longest=20)) == ["a" * 20]
    assert list(parts("", WORD_ENDS)) == [""]


def test_a_long_text_is_really_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(tmp_path / "bpe.gguf", bpe_vocabulary())
    line = "hello world, "
    wanted = tokenizer.encode(line) * 20_000
    lengths: list[int] = []
    plain = tokenizer_module._ids

    def watched(inner: Tokenizer, text: str) -> list[int]:
        lengths.append(len(text))
        return plain(inner, text)

    monkeypatch.setattr(tokenizer_module, "_ids", watched)
    assert tokenizer.encode(line * 20_000) == wanted
    assert sum(lengths) == 20_000 * len(line)
    assert max(lengths) < PART + len(line)
