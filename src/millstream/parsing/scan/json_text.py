"""JSON text read incrementally and passed on as written: strings, escapes and nesting are followed, nothing is rebuilt.

Inside a string nothing is markup. Outside strings a marker ends the value, because no JSON text holds one there.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Sink, Steps

_IN_STRING = re.compile(r'["\\]')
_SCALAR_END = re.compile(r'[\s,:\]}\[{"<]')
_SIMPLE_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DECODABLE = re.compile(
    r"[^\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]", re.DOTALL
)
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB]")
_LOW_SURROGATE_BEGUN = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")

NO_MARKERS = Markers(())


class JsonReader:
    """Finds the end of one JSON value. Lenient: brackets are counted, not matched, and what stands between them is not
    checked, so text that is almost JSON is passed on too.

    Args:
        stops: markers before which it stops outside strings.
    """

    def __init__(self, stops: Markers = NO_MARKERS) -> None:
        self.done = False
        self._stops = stops
        self._depth = 0
        self._started = False
        self._in_string = False
        self._escaped = False
        self._past_head = False
        self._outside = _structure_or(stops.heads)

    def no_marker(self) -> None:
        self._past_head = True

    def read(self, text: str, start: int) -> int:
        at = start
        while at < len(text) and not self.done:
            if self._escaped:
                self._escaped = False
                at += 1
            elif self._in_string:
                at = self._read_string(text, at)
            elif self._depth == 0:
                at = self._read_root(text, at)
            else:
                found = self._outside.search(text, at)
                if found is None:
                    return len(text)
                at = found.start()
                if self._may_stop(text, at):
                    return at
                at += 1
                self._structure(found.group())
        return at

    def _read_string(self, text: str, at: int) -> int:
        found = _IN_STRING.search(text, at)
        if found is None:
            return len(text)
        if found.group() == "\\":
            self._escaped = True
        else:
            self._in_string = False
            self.done = self._depth == 0
        return found.end()

    def _read_root(self, text: str, at: int) -> int:
        if not self._started:
            self._started = True
            if text[at] in '{["':
                self._structure(text[at])
                return at + 1
        found = _SCALAR_END.search(text, at)
        if found is None:
            return len(text)
        self.done = True
        return found.start()

    def _structure(self, char: str) -> None:
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.done = self._depth == 0

    def _may_stop(self, text: str, at: int) -> bool:
        if self._past_head:
            self._past_head = False
            return False
        return text[at] in self._stops.heads and (
            self._stops.match(text, at) is not None or self._stops.open_at(text, at)
        )


@lru_cache(maxsize=64)
def _structure_or(heads: frozenset[str]) -> re.Pattern[str]:
    return re.compile("[" + re.escape('"{}[]' + "".join(sorted(heads))) + "]")


class StringDecoder:
    """Turns the raw text of one JSON string (quotes included) into what it stands for, piece by piece."""

    def __init__(self) -> None:
        self._raw = ""
        self._opened = False

    def feed(self, raw: str) -> str:
        """Decodes what is complete. The closing quote, being the only bare one, is dropped."""
        if not self._opened and raw:
            self._opened, raw = True, raw[1:]
        text = self._raw + raw
        out: list[str] = []
        at = 0
        while at < len(text):
            found = _DECODABLE.match(text, at)
            if found is None:
                if _ESCAPE_BEGUN.match(text, at):
                    break
                out.append(text[at])
                at += 1
                continue
            token = found.group()
            if len(token) == 6 and _HIGH_SURROGATE.match(token) and _LOW_SURROGATE_BEGUN.match(text, found.end()):
                break
            out.append(_decoded(token))
            at = found.end()
        self._raw = text[at:]
        return "".join(out)


def _decoded(token: str) -> str:
    if token[0] != "\\":
        return token[:-1] if token.endswith('"') else token
    if token[1] != "u":
        return _SIMPLE_ESCAPES.get(token[1], token[1])
    if len(token) == 12:
        return str(json.loads(f'"{token}"'))
    code = int(token[2:], 16)
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def json_value(scanner: Scanner, sink: Sink, stops: Markers = NO_MARKERS) -> Steps[bool]:
    """Passes one JSON value on as written. False: a marker of ``stops`` cut it short (and is unread).

    Raises:
        EndOfInput: the input ended first.
    """
    return (yield from scanner.scan(JsonReader(stops), sink, stops))


def json_string(scanner: Scanner, stops: Markers = NO_MARKERS) -> Steps[str | None]:
    """Reads one JSON string and decodes it; None if it is none."""
    parts: list[str] = []
    if not (yield from json_value(scanner, parts.append, stops)):
        return None
    try:
        value = json.loads("".join(parts), strict=False)
    except ValueError:
        return None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
