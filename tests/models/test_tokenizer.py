"""Tokenizers: golden ids from Transformers on real models, and laws on small vocabularies."""

from __future__ import annotations

import json
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gguf_files import bpe_vocabulary, byte_letters, spm_vocabulary, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile
from millstream.models.pretokenizers import PRE_TOKENIZERS
from millstream.models.tokenizer import GGUFTokenizer
from millstream.models.vocabulary import byte_alphabet
from support.real_models import GEMMA, QWEN, SMOLLM2, real_model

GOLDEN = Path(__file__).parent / "golden"
STEMS = [SMOLLM2, QWEN, GEMMA]

# Where Transformers' conversion of the GGUF file differs from the tokenizer that the model was trained with.
EXCEPTIONS: dict[str, dict[str, list[int]]] = {
    # It does not cut characters such as ² apart, as the digit rule of tokenizer.json does (all of \p{N}).
    SMOLLM2: {"½ ² ³ ① Ⅷ": [16738, 216, 19133, 216, 39050, 216, 173, 235, 250, 216, 173, 223, 117]},
    # It does not compose characters (NFC), as tokenizer.json does.
    QWEN: {
        "nai\u0308ve cafe\u0301": [3376, 37572, 586, 51950],
        "e\u0301\u0302\u0303": [963, 136, 224, 136, 225],
    },
    # SentencePiece takes the longest user-defined piece first: 31 spaces and 2, not 16 and 17.
    GEMMA: {" " * 33: [167, 138]},
}


@cache
def real_tokenizer(stem: str) -> GGUFTokenizer:
    with GGUFFile(real_model(stem)) as file:
        return GGUFTokenizer(file)


@cache
def known_bytes(stem: str) -> frozenset[int]:
    """Bytes that have a token of their own; SmolLM2 lacks some that hardly any text has."""
    tokenizer = real_tokenizer(stem)
    single = {tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)}
    return frozenset(byte for byte in range(256) if bytes([byte]) in single)


def tokenizer_of(path: Path, metadata: dict[str, Any]) -> GGUFTokenizer:
    with GGUFFile(write_gguf(path, metadata)) as file:
        return GGUFTokenizer(file)


def decode(tokenizer: GGUFTokenizer, ids: list[int]) -> bytes:
    return b"".join(map(tokenizer.token_bytes, ids))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> GGUFTokenizer:
    return tokenizer_of(tmp_path_factory.mktemp("bpe") / "v.gguf", bpe_vocabulary())


@pytest.fixture(scope="module")
def spm(tmp_path_factory: pytest.TempPathFactory) -> GGUFTokenizer:
    metadata = spm_vocabulary(**{"tokenizer.ggml.add_space_prefix": False})
    return tokenizer_of(tmp_path_factory.mktemp("spm") / "v.gguf", metadata)


@pytest.mark.parametrize("stem", STEMS)
def test_golden_ids(stem: str) -> None:
    tokenizer = real_tokenizer(stem)
    cases = {case["text"]: case["ids"] for case in json.loads((GOLDEN / f"{stem}.json").read_text())}
    assert len(cases) > 100
    wrong = {text: tokenizer.encode(text) for text, ids in cases.items() if tokenizer.encode(text) != ids}
    assert wrong == EXCEPTIONS[stem]


@pytest.mark.parametrize("stem", STEMS)
def test_bytes_of_golden_ids_are_the_text(stem: str) -> None:
    tokenizer = real_tokenizer(stem)
    for case in json.loads((GOLDEN / f"{stem}.json").read_text()):
        text = case["text"].replace("▁", " ") if stem == GEMMA else case["text"]
        if "<0x41>" not in text:
            assert decode(tokenizer, case["ids"]) == text.encode()


@pytest.mark.parametrize("stem", STEMS)
@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_real_tokenizers_lose_nothing(stem: str, text: str) -> None:
    tokenizer = real_tokenizer(stem)
    wanted = unicodedata.normalize("NFC", text) if stem == QWEN else text.replace("▁", " ") if stem == GEMMA else text
    known = bytes(byte for byte in wanted.encode() if byte in known_bytes(stem))
    for parse_special in (False, True):
        ids = tokenizer.encode(text, parse_special=parse_special)
        assert decode(tokenizer, ids) == known
    assert not any(tokenizer.is_special(token_id) for token_id in tokenizer.encode(text, parse_special=False))


def test_real_special_tokens() -> None:
    smollm2, qwen, gemma = map(real_tokenizer, STEMS)
    assert (smollm2.bos_id, smollm2.eos_ids, smollm2.vocab_size) == (1, {0, 2}, 49152)
    assert (qwen.bos_id, qwen.eos_ids, qwen.vocab_size) == (151643, {151643, 151645}, 151936)
    assert (gemma.bos_id, gemma.eos_ids, gemma.vocab_size) == (2, {1, 106}, 262144)
    assert qwen.is_special(151644)
    assert not qwen.is_special(151657)  # <tool_call>, which is text to the parsers
    assert qwen.is_special(151935)  # padding of the embedding table
    assert gemma.is_special(0)
    assert not gemma.is_special(107)
    assert gemma.encode("Hi", add_bos=True)[0] == 2
    assert gemma.encode("<bos>Hi", add_bos=True).count(2) == 1
    assert smollm2.encode("Hi", add_bos=True) == smollm2.encode("Hi")


def test_other_threads_run_during_a_long_text(bpe: GGUFTokenizer) -> None:
    def turns() -> int:
        """Of this thread, while another encodes."""
        count = 0
        with ThreadPoolExecutor(1) as pool:
            encoding = pool.submit(bpe.encode, "hello " * 200_000)
            while not encoding.done():
                time.sleep(0.001)
                count += 1
        return count

    # The machine may keep this thread from running for as long; only the other thread would each time.
    assert any(turns() > 5 for _ in range(20))


def test_lone_surrogates_become_replacement_characters(bpe: GGUFTokenizer) -> None:
    assert decode(bpe, bpe.encode("a\ud83db")) == "a\ufffdb".encode()
    assert decode(bpe, bpe.encode("\ud83d\ude42")) == "🙂".encode()


def test_bpe_merges_and_control_tokens(bpe: GGUFTokenizer) -> None:
    ids = {text: token_id for token_id, text in enumerate(bpe_vocabulary()["tokenizer.ggml.tokens"])}
    assert bpe.encode("hello world") == [ids["hello"], ids["Ġworld"]]
    assert bpe.encode("<|im_end|>hello") == [ids["<|im_end|>"], ids["hello"]]
    plain = bpe.encode("<|im_end|><tool_call>", parse_special=False)
    assert plain[:10] == [ids[letter] for letter in "<|im_end|>"]
    assert plain[10:] == [ids["<tool_call>"]]
    assert bpe.token_bytes(ids["<|im_end|>"]) == b"<|im_end|>"
    assert [bpe.token_bytes(token_id) for token_id in range(256)] == [bytes([byte]) for byte in range(256)]
    assert bpe.is_special(ids["<|im_end|>"])
    assert not bpe.is_special(ids["<tool_call>"])
    assert bpe.eos_ids == {ids["<|im_end|>"], ids["<|endoftext|>"]}


@given(text=st.text())
def test_bpe_loses_nothing(bpe: GGUFTokenizer, text: str) -> None:
    for parse_special in (False, True):
        assert decode(bpe, bpe.encode(text, parse_special=parse_special)) == text.encode()


@given(text=st.text(st.one_of(st.characters(codec="utf-8", exclude_characters="▁"), st.sampled_from("helo wrld\n"))))
def test_spm_loses_nothing(spm: GGUFTokenizer, text: str) -> None:
    assert decode(spm, spm.encode(text, parse_special=False)) == text.encode()


def test_spm_pieces_and_bytes(spm: GGUFTokenizer) -> None:
    ids = {text: token_id for token_id, text in enumerate(spm_vocabulary()["tokenizer.ggml.tokens"])}
    assert spm.encode("hello world") == [ids["hello"], ids["▁world"]]
    assert spm.encode("é") == [ids["<0xC3>"], ids["<0xA9>"]]
    assert spm.encode("[tool]</s>") == [ids["[tool]"], ids["</s>"]]
    assert ids["</s>"] not in spm.encode("</s>", parse_special=False)
    assert spm.token_bytes(ids["<0xC3>"]) == b"\xc3"
    assert spm.token_bytes(ids["▁world"]) == b" world"
    assert spm.token_bytes(ids["</s>"]) == b"</s>"
    assert spm.encode("hello", add_bos=True) == [ids["<s>"], ids["hello"]]
    assert spm.encode("<s>hello", add_bos=True) == [ids["<s>"], ids["hello"]]


def test_spm_space_prefix_comes_before_each_stretch_of_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path / "v.gguf", spm_vocabulary())
    ids = {text: token_id for token_id, text in enumerate(spm_vocabulary()["tokenizer.ggml.tokens"])}
    assert tokenizer.encode("hello") == [ids["▁hello"]]
    assert tokenizer.encode("hello</s>hello") == [ids["▁hello"], ids["</s>"], ids["▁hello"]]
    assert tokenizer.encode("") == []


@pytest.mark.parametrize(("flag", "pre", "begins"), [(None, "smollm", False), (None, "llama-bpe", True),
                                                     (True, "smollm", True), (False, "llama-bpe", False)])  # fmt: skip
def test_bos_follows_the_file_then_the_pre_tokenizer(tmp_path: Path, flag: bool | None, pre: str, begins: bool) -> None:
    extra = {} if flag is None else {"tokenizer.ggml.add_bos_token": flag}
    tokenizer = tokenizer_of(tmp_path / "v.gguf", bpe_vocabulary(pre, **extra))
    assert (tokenizer.encode("hello", add_bos=True)[0] == tokenizer.bos_id) is begins
    assert tokenizer.encode("hello")[0] != tokenizer.bos_id


@pytest.fixture(scope="module", params=[*PRE_TOKENIZERS, None])
def any_pre(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str | None, GGUFTokenizer]:
    return request.param, tokenizer_of(tmp_path_factory.mktemp("pre") / "v.gguf", bpe_vocabulary(request.param))


@settings(max_examples=15, deadline=None)
@given(text=st.text())
def test_every_pre_tokenizer_keeps_the_text(any_pre: tuple[str | None, GGUFTokenizer], text: str) -> None:
    pre, tokenizer = any_pre
    composed = pre is not None and PRE_TOKENIZERS[pre].nfc
    wanted = unicodedata.normalize("NFC", text) if composed else text
    assert decode(tokenizer, tokenizer.encode(text)) == wanted.encode()


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("smollm", "ab12 cd", ["ab", "1", "2", " cd"]),
        ("gpt-2", "ab12's  cd", ["ab", "12", "'s", " ", " cd"]),
        ("qwen2", "it'S 12\n\n x", ["it", "'S", " ", "1", "2", "\n\n", " x"]),
        ("llama-bpe", "1234567 .\n a", ["123", "456", "7", " .\n", " a"]),
        ("tekken", "fooBar12", ["foo", "Bar", "1", "2"]),
        ("gpt-4o", "fooBar's 1234", ["foo", "Bar's", " ", "123", "4"]),
        ("falcon", "a==b 12345", ["a", "==", "b", " ", "123", "45"]),
    ],
)
def test_cuts_into_words(tmp_path: Path, pre: str, text: str, words: list[str]) -> None:
    """With a merge for every neighbouring pair, exactly the words stay whole."""
    letters = byte_letters()
    whole = "".join(letters[byte] for byte in text.encode())
    spans = [(whole[a:b], whole[b]) for a in range(len(whole)) for b in range(a + 1, len(whole))]
    merged = list(dict.fromkeys(left + right for left, right in spans))
    metadata = bpe_vocabulary(pre)
    metadata["tokenizer.ggml.tokens"] = [*letters, *(token for token in merged if len(token) > 1)]
    metadata["tokenizer.ggml.token_type"] = [1] * len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.merges"] = list(dict.fromkeys(f"{left} {right}" for left, right in spans))
    metadata |= {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
    tokenizer = tokenizer_of(tmp_path / "v.gguf", metadata)
    assert [tokenizer.token_bytes(token_id).decode() for token_id in tokenizer.encode(text)] == words


def test_byte_alphabet_is_that_of_gpt2() -> None:
    assert [chr(code) for code, _ in sorted(byte_alphabet().items(), key=lambda item: item[1])] == byte_letters()


def test_turn_ends_are_found_by_name(tmp_path: Path) -> None:
    metadata = bpe_vocabulary()
    count = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] += ["<|eot_id|>", "</s>", "<eos>"]
    metadata["tokenizer.ggml.token_type"] += [1, 4, 3]
    metadata["tokenizer.ggml.eom_token_id"] = 5
    tokenizer = tokenizer_of(tmp_path / "v.gguf", metadata)
    assert tokenizer.eos_ids == {count - 4, count - 2, count, count + 2, 5}
    assert tokenizer.is_special(count)
    assert not tokenizer.is_special(count + 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.pre": "brand-new"}, "pre-tokenizer 'brand-new'.*smollm"),
        ({"tokenizer.ggml.model": "t5"}, "kind 't5'.*gpt2, llama"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "same token twice"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 entries"),
        ({"tokenizer.ggml.token_type": [1.0] * 300}, "integers"),
        ({"tokenizer.ggml.merges": ["ab"]}, "not two tokens"),
        ({"tokenizer.ggml.merges": ["h zzz"]}, "do not fit"),
        ({"tokenizer.ggml.model": "llama"}, "scores is missing"),
    ],
)
def test_bad_vocabularies(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        tokenizer_of(tmp_path / "v.gguf", bpe_vocabulary() | changes)


def test_bad_byte_token(tmp_path: Path) -> None:
    metadata = spm_vocabulary()
    metadata["tokenizer.ggml.tokens"][10] = "<0xZZ>"
    with pytest.raises(ModelFileError, match="<0xZZ>"):
        tokenizer_of(tmp_path / "v.gguf", metadata)


def test_ids_outside_the_vocabulary(bpe: GGUFTokenizer) -> None:
    for token_id in (-1, bpe.vocab_size):
        with pytest.raises(IndexError):
            bpe.token_bytes(token_id)
        assert not bpe.is_special(token_id)
