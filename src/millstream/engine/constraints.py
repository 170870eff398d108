"""Grammars of the engine process: made for the vocabulary of the model file, which is read when the first one comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile
from millstream.models.vocabulary import load_token_bytes

if TYPE_CHECKING:
    from millstream.grammars.matcher import Compiler, Matcher


class FileConstraints:
    """Makes constraints; a `millstream.engine.core.ConstraintSource`.

    Nothing is loaded before it is called: llguidance and its form of the vocabulary take 20 MB (50,000 tokens) to
    70 MB (260,000 tokens), and a fraction of a second to two seconds, once.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._compiler: Compiler | None = None

    def __call__(self, grammar: str, tokens: list[int]) -> Matcher:
        """The grammar's matcher, advanced by ``tokens``. Raises ValueError if it cannot be compiled."""
        if self._compiler is None:
            self._compiler = self._load()
        return self._compiler.matcher(grammar, tokens)

    def _load(self) -> Compiler:
        from millstream.grammars.matcher import Compiler

        try:
            with GGUFFile(self._path) as file:
                vocabulary, pieces = load_token_bytes(file)
        except (ModelFileError, OSError) as error:  # the file was good when the engine started
            raise ValueError(f"the vocabulary cannot be read any more: {error}") from None
        tokens = [pieces[token_id] for token_id in range(len(pieces))]
        special = [token_id for token_id in range(len(pieces)) if pieces.is_hidden(token_id)]
        return Compiler(tokens, special_ids=special, eos_ids=vocabulary.eos_ids)
