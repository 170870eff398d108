"""Constraints of the engine process, made for the vocabulary of the model file."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from millstream.engine.core import GrammarCounts
from millstream.engine.protocol import TokenRequest
from millstream.engine.thinking import BudgetedThinking
from millstream.models.errors import ModelFileError
from millstream.models.gguf import GGUFFile
from millstream.models.vocabulary import TokenBytes, load_token_bytes
from millstream.scheduler.sequence import Constraint

if TYPE_CHECKING:
    from millstream.grammars.matcher import Compiler

log = logging.getLogger(__name__)


class _Loaded(NamedTuple):
    pieces: TokenBytes
    compiler: Compiler


class FileConstraints:
    """Makes constraints; a `millstream.engine.core.Constraints`.

    llguidance and its form of the vocabulary take 10 MB (50,000 tokens) to 90 MB (260,000 tokens), and a quarter of a
    second to two seconds of one core, once. `prepare` makes them in a thread; for about two thirds of that time no
    other Python code of the process runs, as llguidance keeps the GIL.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def prepare(self) -> None:
        """Begin to load, unless that was begun. If there is no thread to be had the first request loads."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._try_load, name="vocabulary", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

    def prepared(self, request: TokenRequest) -> bool:
        """Whether the constraint of a request can be made at once; if not, what it needs is being loaded."""
        if request.grammar is None and request.thinking is None:
            return True
        self.prepare()
        return self._thread is None or not self._thread.is_alive()

    def __call__(self, request: TokenRequest) -> Constraint | None:
        """The constraint of a request, advanced by its ``output``; None: it has none.

        Raises:
            ValueError: its grammar cannot be compiled.
        """
        if request.grammar is None and request.thinking is None:
            return None
        loaded = self._load()
        constraint: Constraint | None = None
        if request.grammar is not None:
            constraint = loaded.compiler.matcher(request.grammar, tenant=request.tenant)
        if request.thinking is not None:
            pieces = loaded.pieces
            constraint = BudgetedThinking(
                request.thinking, lambda token: pieces[token] if token < len(pieces) else b"", constraint
            )
        if constraint is not None:
            for token in request.output:
                constraint.advance(token)
        return constraint

    def counts(self) -> GrammarCounts:
        """What was done so far; may be called from any thread."""
        loaded = self._loaded
        if loaded is None:
            return GrammarCounts()
        return GrammarCounts(loaded.compiler.compiled, loaded.compiler.reused, loaded.compiler.kept_bytes)

    def _try_load(self) -> None:
        try:
            self._load()
        except Exception:  # whoever needs it is told
            log.warning("grammars could not be prepared", exc_info=True)

    def _load(self) -> _Loaded:
        from millstream.grammars.matcher import Compiler

        with self._lock:
            if self._loaded is None:
                try:
                    with GGUFFile(self._path) as file:
                        vocabulary, pieces = load_token_bytes(file)
                except (ModelFileError, OSError) as error:  # the file was good when the engine started
                    raise ValueError(f"the vocabulary cannot be read any more: {error}") from None
                tokens = [pieces[token_id] for token_id in range(len(pieces))]
                special = [token_id for token_id in range(len(pieces)) if pieces.is_hidden(token_id)]
                compiler = Compiler(tokens, special_ids=special, eos_ids=vocabulary.eos_ids)
                self._loaded = _Loaded(pieces, compiler)
            return self._loaded
