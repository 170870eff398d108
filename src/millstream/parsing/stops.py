"""Stop strings, matched across pieces of text in linear time.

The text is read character by character, and the first stop string to be *completed* ends it; if several are completed
by the same character, the longest of them is the match, so that the visible text never contains a whole stop string.
The rule looks at nothing but the characters, so the result cannot depend on how the text was cut into pieces.

The automaton is that of A. V. Aho and M. J. Corasick, "Efficient string matching: an aid to bibliographic search"
(CACM 18, 1975). Its state is the longest suffix of the text that begins some stop string: exactly what must be held
back.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable


class StopStrings:
    """A compiled set of stop strings; immutable, shared by the choices of a request. Node 0 is the root."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = tuple(dict.fromkeys(strings))
        if "" in self.strings:
            raise ValueError("a stop string must not be empty")
        self.children: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.word = [""]
        self.found: list[str | None] = [None]
        for string in self.strings:
            self._insert(string)
        self.fail = [0] * len(self.depth)
        self.rest = [0] * len(self.depth)
        self._link()
        firsts = "".join(re.escape(char) for char in self.children[0])
        self.first = re.compile(f"[{firsts}]") if firsts else None

    def _insert(self, string: str) -> None:
        node = 0
        for depth, char in enumerate(string, 1):
            child = self.children[node].get(char)
            if child is None:
                child = self.children[node][char] = len(self.depth)
                self.children.append({})
                self.depth.append(depth)
                self.word.append(string)
                self.found.append(None)
            node = child
        self.found[node] = string

    def _link(self) -> None:
        """Breadth first: ``fail`` is the node of the longest proper suffix, ``found`` the longest stop string that ends
        at a node, ``rest`` the longest suffix that can still grow (where to go on if a match does not count)."""
        queue = deque(self.children[0].values())
        while queue:
            node = queue.popleft()
            self.found[node] = self.found[node] or self.found[self.fail[node]]
            self.rest[node] = node if self.children[node] else self.rest[self.fail[node]]
            for char, child in self.children[node].items():
                self.fail[child] = self.step(self.fail[node], char)
                queue.append(child)

    def step(self, node: int, char: str) -> int:
        """The node after one more character; amortised constant time."""
        while True:
            child = self.children[node].get(char)
            if child is not None:
                return child
            if node == 0:
                return 0
            node = self.fail[node]


class StopMatcher:
    """Stop strings over the visible text of one choice. ``matched`` is the stop string that ended it."""

    __slots__ = ("_state", "_stops", "matched")

    def __init__(self, stops: StopStrings) -> None:
        self._stops = stops
        self._state = 0
        self.matched: str | None = None

    def feed(self, text: str, *, armed: bool = True) -> str:
        """The text that is now certain to be visible. A stop string that ``text`` completes while not ``armed`` is
        ordinary text. After a match nothing may be fed."""
        stops = self._stops
        if stops.first is None:
            return text
        before = state = self._state
        at, end = 0, len(text)
        while at < end:
            if state == 0:
                start = stops.first.search(text, at)
                if start is None:
                    break
                at = start.start()
            state = stops.step(state, text[at])
            at += 1
            found = stops.found[state]
            if found is not None:
                if armed:
                    self.matched = found
                    self._state = 0
                    return self._release(before, text, stops.depth[before] + at - len(found))
                state = stops.rest[state]
        self._state = state
        return self._release(before, text, stops.depth[before] + end - stops.depth[state])

    def flush(self) -> str:
        """What was held back, as visible text: no stop string can be completed any more."""
        held = self._stops.word[self._state][: self._stops.depth[self._state]]
        self._state = 0
        return held

    def _release(self, before: int, text: str, count: int) -> str:
        """The first ``count`` characters of what was held in state ``before``, followed by ``text``."""
        held = self._stops.depth[before]
        if count <= held:
            return self._stops.word[before][:count]
        return self._stops.word[before][:held] + text[: count - held] if held else text[:count]
