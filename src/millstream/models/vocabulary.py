"""The vocabulary of a GGUF file: token texts, their kinds, and the tokens with a meaning of their own."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import NamedTuple, TypeVar

from millstream.models.gguf import GGUFFile
from millstream.models.turn_ends import ends_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token kinds of ``tokenizer.ggml.token_type``."""

_HIDDEN_KINDS = frozenset({UNKNOWN, CONTROL, UNUSED})

_SPM_SPACE = "▁"

_Number = TypeVar("_Number", int, float)


class Vocabulary(NamedTuple):
    """``texts`` and ``kinds`` by token id, ``ids`` by text. ``scores`` is empty for vocabularies that have merges."""

    texts: list[str]
    ids: dict[str, int]
    kinds: list[int]
    scores: list[float]
    bos_id: int | None
    eos_ids: frozenset[int]
    unknown_id: int | None


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Read and check the vocabulary. Raises `ModelFileError`."""
    texts = file.strings("tokenizer.ggml.tokens")
    ids = {text: token_id for token_id, text in enumerate(texts)}
    if (empty := ids.pop("", None)) is not None:
        texts[empty] = f"[EMPTY_{empty}]"
        ids[texts[empty]] = empty
    if not texts or len(ids) != len(texts):
        file.fail("the vocabulary is empty or has the same token twice; get another conversion of the model")
    kinds = [NORMAL] * len(texts)
    scores: list[float] = []
    if "tokenizer.ggml.token_type" in file:
        kinds = _per_token(file, "tokenizer.ggml.token_type", file.integers("tokenizer.ggml.token_type"), len(texts))
    if "tokenizer.ggml.scores" in file:
        scores = _per_token(file, "tokenizer.ggml.scores", file.numbers("tokenizer.ggml.scores"), len(texts))
    named = {token_id for key in ("eos", "eot", "eom") if (token_id := special_id(file, key, len(texts))) is not None}
    control = {text for text, token_id in ids.items() if kinds[token_id] == CONTROL}
    template = file.text("tokenizer.chat_template", "")
    ends, inner = ends_of(ids.keys(), control, {texts[token_id] for token_id in named}, template)
    for text in ends | inner:
        kinds[ids[text]] = CONTROL
    return Vocabulary(
        texts=texts,
        ids=ids,
        kinds=kinds,
        scores=scores,
        bos_id=special_id(file, "bos", len(texts)),
        eos_ids=frozenset(ids[text] for text in ends),
        unknown_id=special_id(file, "unknown", len(texts)),
    )


def special_id(file: GGUFFile, name: str, vocab_size: int) -> int | None:
    """The id in ``tokenizer.ggml.<name>_token_id``, or None if the file has none that lies in the vocabulary."""
    token_id = file.integer(f"tokenizer.ggml.{name}_token_id", -1)
    return token_id if 0 <= token_id < vocab_size else None


def _per_token(file: GGUFFile, key: str, values: list[_Number], count: int) -> list[_Number]:
    if len(values) < count:
        file.fail(f"metadata {key} has {len(values)} entries for {count} tokens; get another conversion of the model")
    return values[:count]


class TokenBytes:
    """The bytes of every token in one buffer: token i is ``data[starts[i]:starts[i + 1]]``."""

    def __init__(self, pieces: bytes, lengths: list[int], hidden: bytes) -> None:
        self._data = pieces
        self._starts = array("I", [0, *accumulate(lengths)])
        self._hidden = hidden

    def __len__(self) -> int:
        return len(self._hidden)

    def __getitem__(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._hidden):
            raise IndexError(f"token id {token_id} is outside the vocabulary of {len(self)} tokens")
        return self._data[self._starts[token_id] : self._starts[token_id + 1]]

    def is_hidden(self, token_id: int) -> bool:
        """Whether the token is no part of visible text."""
        return 0 <= token_id < len(self._hidden) and self._hidden[token_id] == 1


def byte_alphabet() -> dict[int, int]:
    """GPT-2's alphabet: code point of the character that stands for a byte -> that byte.

    Printable Latin-1 characters stand for themselves, the other bytes for the characters from U+0100 on
    (``bytes_to_unicode`` in https://github.com/openai/gpt-2/blob/master/src/encoder.py).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + n: byte for n, byte in enumerate(others)}


def byte_level_bytes(vocabulary: Vocabulary) -> TokenBytes:
    """Token bytes of a byte-level vocabulary: one character of a normal token is one byte.

    Added tokens, and tokens with a character outside the alphabet, stand for the UTF-8 of their text.
    """
    alphabet = byte_alphabet()
    letters = {chr(code) for code in alphabet}
    letter_of = {byte: chr(code) for code, byte in alphabet.items()}
    texts = list(vocabulary.texts)
    all_plain = letters.issuperset("".join(texts))
    for token_id, kind in enumerate(vocabulary.kinds):
        if kind != NORMAL or not (all_plain or letters.issuperset(texts[token_id])):
            texts[token_id] = "".join(letter_of[byte] for byte in texts[token_id].encode())
    table = {code: chr(byte) for code, byte in alphabet.items()}
    data = "".join(texts).translate(table).encode("latin-1")
    return TokenBytes(data, [len(text) for text in texts], _hidden(vocabulary))


def spm_bytes(vocabulary: Vocabulary) -> TokenBytes:
    """Token bytes of a SentencePiece vocabulary: ``▁`` is a space, ``<0xNN>`` is one byte."""
    pieces = [
        bytes([spm_byte(text)])
        if kind == BYTE
        else (text if kind == CONTROL else text.replace(_SPM_SPACE, " ")).encode()
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
    ]
    return TokenBytes(b"".join(pieces), [len(piece) for piece in pieces], _hidden(vocabulary))


def load_token_bytes(file: GGUFFile) -> tuple[Vocabulary, TokenBytes]:
    """The vocabulary with the bytes of its tokens, without the rest of a tokenizer. Raises `ModelFileError`."""
    vocabulary = read_vocabulary(file)
    if file.text("tokenizer.ggml.model") == "llama":
        try:
            return vocabulary, spm_bytes(vocabulary)
        except ValueError as error:
            file.fail(f"{error}; get another conversion of the model")
    return vocabulary, byte_level_bytes(vocabulary)


def spm_byte(text: str) -> int:
    """The byte of a token named ``<0xNN>``. Raises ValueError for other names."""
    if len(text) != 6 or not text.startswith("<0x") or text[5] != ">":
        raise ValueError(f"byte token {text!r} is not of the form <0xNN>")
    try:
        return int(text[3:5], 16)
    except ValueError:
        raise ValueError(f"byte token {text!r} is not of the form <0xNN>") from None


def _hidden(vocabulary: Vocabulary) -> bytes:
    return bytes(kind in _HIDDEN_KINDS for kind in vocabulary.kinds)
