"""The free text of a custom tool's call, read out of its JSON arguments while they are generated.

For the model a custom tool is a function with one string argument, ``{"input": "…"}``; for the client it is the text.
"""

from __future__ import annotations

import re

import msgspec

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HEAD_BEGUN = re.compile(r'\s*(?:\{\s*(?:"(?:i(?:n(?:p(?:u(?:t(?:"\s*(?::\s*)?)?)?)?)?)?)?)?)?')
_HEAD_LIMIT = 256
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_REPLACEMENT = "\ufffd"


class InputReader:
    """`feed` gives the text that each fragment adds; `finish` what remains, if the arguments were not of that form."""

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._head = ""
        self._held = ""
        self._inside = False
        self._closed = False

    def feed(self, fragment: str) -> str:
        """New text. Held back is only an escape sequence that is not complete."""
        self._raw.append(fragment)
        if self._inside:
            return self._text(fragment)
        if self._closed or len(self._head) > _HEAD_LIMIT:
            return ""
        self._head += fragment
        head = _HEAD.match(self._head)
        if head is None:
            return ""
        self._inside = True
        return self._text(self._head[head.end() :])

    def finish(self) -> str:
        """The rest of the text. Arguments of another form are shown as they are: nothing the model said is lost."""
        if self._inside or self._closed:
            return ""
        raw = "".join(self._raw)
        if _HEAD_BEGUN.fullmatch(raw):
            return ""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return raw
        if not isinstance(value, dict):
            return value if isinstance(value, str) else raw
        if isinstance(value.get("input"), str):
            return str(value["input"])
        return raw if value else ""

    def _text(self, fragment: str) -> str:
        text, at = self._held + fragment, 0
        out: list[str] = []
        while at < len(text):
            if plain := _PLAIN.match(text, at):
                out.append(plain[0])
                at = plain.end()
            elif text[at] == '"':
                self._inside, self._closed = False, True
                at = len(text)
            else:
                character, length = _escape(text, at)
                if not length:
                    break
                out.append(character)
                at += length
        self._held = text[at:]
        return "".join(out)


def _escape(text: str, at: int) -> tuple[str, int]:
    """The character of the escape sequence at a backslash, and the length of the sequence (0: it is not complete)."""
    if at + 1 >= len(text):
        return "", 0
    if text[at + 1] != "u":
        return _ESCAPES.get(text[at + 1], text[at + 1]), 2
    if len(text) < at + 6:
        return "", 0
    unit = _unit(text, at)
    if unit is None or 0xDC00 <= unit < 0xE000:
        return _REPLACEMENT, 6
    if not 0xD800 <= unit < 0xDC00:
        return chr(unit), 6
    rest = text[at + 6 : at + 12]
    if len(rest) < 6 and "\\u".startswith(rest[:2]):
        return "", 0
    low = _unit(text, at + 6) if rest.startswith("\\u") else None
    if low is None or not 0xDC00 <= low < 0xE000:
        return _REPLACEMENT, 6
    return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), 12


def _unit(text: str, at: int) -> int | None:
    digits = text[at + 2 : at + 6]
    try:
        return int(digits, 16) if digits.isalnum() else None
    except ValueError:
        return None
