"""Finding one of several literal markers in text that is still growing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


class Markers:
    """A set of literal strings to look for. Where several begin at one place the longest wins."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted({literal for literal in literals if literal}, key=len, reverse=True))
        self.heads = frozenset(literal[0] for literal in self.literals)
        self._longest = max((len(literal) for literal in self.literals), default=0)
        self._pattern = _alternatives(self.literals)

    def __contains__(self, literal: str) -> bool:
        return literal in self.literals

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The leftmost whole marker at or after ``start``."""
        return self._pattern.search(text, start)

    def match(self, text: str, start: int) -> str | None:
        """The marker that stands whole at ``start``."""
        found = self._pattern.match(text, start)
        return found.group() if found else None

    def open_at(self, text: str, start: int) -> bool:
        """Whether the text from ``start`` to its end is the beginning of a marker, and not yet a whole one."""
        rest = len(text) - start
        return any(rest < len(literal) and literal.startswith(text[start:]) for literal in self.literals)

    def settled(self, text: str, start: int) -> int:
        """Where the part that may still grow into a marker begins, in text that holds no whole one: what lies before
        can be passed on. Looks at no more characters than the longest marker has."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[at] in self.heads and self.open_at(text, at):
                return at
        return len(text)


@lru_cache(maxsize=512)
def _alternatives(literals: tuple[str, ...]) -> re.Pattern[str]:
    """Parsers are made for every choice, from the same few sets."""
    return re.compile("|".join(re.escape(literal) for literal in literals) or r"(?!)")
