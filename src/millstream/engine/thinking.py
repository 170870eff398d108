"""Reasoning that ends when its budget is used: the tokens of its closing marker are then the only ones allowed.

What is forced depends on the output tokens alone, so it is the same in any batch, after preemption and after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from millstream.engine.protocol import ThinkingBudget
from millstream.scheduler.sequence import Constraint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ALL = 0xFFFFFFFF
_MOST_BYTES_MISSING = 3
"""Of a character that has begun. In bytes that are no UTF-8 another may always seem to begin."""


class BudgetedThinking:
    """A `Constraint` around another one, or around none.

    Only the reasoning with which an answer begins is counted. A budget that ends within a character waits for its last
    byte, which is three tokens at most.

    Args:
        token_bytes: the bytes of a token; empty for one that the tokenizer does not know.
        inner: what the whole output must be, reasoning included.
    """

    def __init__(
        self, budget: ThinkingBudget, token_bytes: Callable[[int], bytes], inner: Constraint | None = None
    ) -> None:
        self._budget = budget
        self._token_bytes = token_bytes
        self._inner = inner
        self._open = budget.open.encode()
        self._close = budget.close.encode()
        self._phase: Literal["before", "thinking", "closing", "done"] = "before"
        self._text = b""
        self._count = 0
        self._forced = 0
        if not self._open:
            self._begin(b"")

    def mask(self, out: NDArray[np.uint32]) -> None:
        """Write the allowed tokens into ``out`` [ceil(vocab / 32)]."""
        if self._phase == "closing":
            token = self._budget.tokens[self._forced]
            out.fill(0)
            out[token // 32] = 1 << token % 32
        elif self._inner is not None:
            self._inner.mask(out)
        else:
            out.fill(_ALL)

    def forced(self) -> int | None:
        """The only token that `mask` would allow, if that is known."""
        if self._phase == "closing":
            return self._budget.tokens[self._forced]
        return None if self._inner is None else self._inner.forced()

    def advance(self, token: int) -> None:
        """The token was sampled."""
        if self._inner is not None:
            self._inner.advance(token)
        match self._phase:
            case "before":
                self._look_for_opening(self._token_bytes(token))
            case "thinking":
                self._count += 1
                self._think(self._token_bytes(token))
            case "closing":
                self._forced += 1
                if self._forced == len(self._budget.tokens):
                    self._phase = "done"
            case "done":
                pass

    @property
    def finished(self) -> bool:
        """Whether the output is whole and nothing may follow."""
        return self._phase != "closing" and self._inner is not None and self._inner.finished

    @property
    def error(self) -> str | None:
        """Why nothing may follow although the output is not whole."""
        return None if self._inner is None else self._inner.error

    def _look_for_opening(self, piece: bytes) -> None:
        self._text = (self._text + piece).lstrip()
        if self._text.startswith(self._open):
            self._begin(self._text[len(self._open) :])
        elif not self._open.startswith(self._text):
            self._phase = "done"

    def _begin(self, text: bytes) -> None:
        self._phase, self._text = "thinking", b""
        self._think(text)

    def _think(self, piece: bytes) -> None:
        text = self._text + piece
        if self._close in text:
            self._phase = "done"
            return
        self._text = text[-max(len(self._close) - 1, 3) :]
        over = self._count - self._budget.limit
        if over >= 0 and (over == _MOST_BYTES_MISSING or not _cut_character(self._text)):
            self._phase = "closing"


def _cut_character(text: bytes) -> bool:
    """Whether the text ends within a UTF-8 character."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte >= 0xC0:
            return back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) and byte < 0xF8
        if byte < 0x80:
            return False
    return False
