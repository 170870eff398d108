"""What decoding knows of a vocabulary, cached per model and shared by all its answers."""

from __future__ import annotations

from typing import Protocol


class Vocabulary(Protocol):
    """The part of a tokenizer that decoding needs (`millstream.models.interfaces.Tokenizer` has it)."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


class TokenTable(dict[int, "str | bytes | None"]):
    """What a token adds to the text: ``str`` if its bytes are whole characters, ``bytes`` if they are only part of
    some, None for a control token, which has no text.

    Entries are made at first use, so a vocabulary of any size costs nothing at start. Tokens that end a turn count as
    control tokens even where a model file forgot to mark them, and so do ids beyond the tokenizer (padded embeddings).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._names: dict[int, tuple[str, bytes]] = {}

    def __missing__(self, token_id: int) -> str | bytes | None:
        piece = self[token_id] = self._piece(token_id)
        return piece

    def _piece(self, token_id: int) -> str | bytes | None:
        vocabulary = self._vocabulary
        if not 0 <= token_id < vocabulary.vocab_size:
            return None
        if vocabulary.is_special(token_id) or token_id in vocabulary.eos_ids:
            return None
        raw = vocabulary.token_bytes(token_id)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return raw

    def name(self, token_id: int) -> tuple[str, bytes]:
        """A token as logprobs show it: its text, with U+FFFD for partial characters, and its exact bytes."""
        name = self._names.get(token_id)
        if name is None:
            known = 0 <= token_id < self._vocabulary.vocab_size
            raw = self._vocabulary.token_bytes(token_id) if known else b""
            name = self._names[token_id] = (raw.decode("utf-8", "replace"), raw)
        return name
