"""Tool arguments as a JSON object, also when the answer ended before they did."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_CLOSER = {"{": "}", "[": "]"}


class _Brackets(NamedTuple):
    """Open brackets as a linked list, so that remembering them at a place costs nothing."""

    bracket: str
    below: _Brackets | None


def is_object(text: str) -> bool:
    """Whether a text is one complete JSON object."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        _decode(text)
        return True
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def as_object(arguments: str) -> msgspec.Raw:
    """The arguments of a call as an object: as they stand, or, if they were cut, all members that are complete.

    What is no object at all becomes ``{}``; the format has no place for it.
    """
    for candidate in (arguments, _closed(arguments)):
        if is_object(candidate):
            return msgspec.Raw(candidate.encode())
    return msgspec.Raw(b"{}")


def _closed(text: str) -> str:
    """The longest beginning of a cut text that ends with a whole member, with its brackets closed."""
    stack: _Brackets | None = None
    end, open_at_end = 0, stack
    at, keyed = 0, False
    while match := _TOKEN.match(text, at):
        token, at = match.group(), match.end()
        if token in _CLOSER:
            stack, keyed = _Brackets(token, stack), False
        elif token in ("}", "]"):
            if stack is None or _CLOSER[stack.bracket] != token:
                break
            stack = stack.below
        elif token in (":", ","):
            keyed = token == ":"
            continue
        elif token.isspace() or not (keyed or (stack is not None and stack.bracket == "[")):
            continue
        elif at == len(text) and not token.startswith('"'):
            break  # a number at the very end may be the beginning of a longer one
        end, open_at_end = at, stack
    closers = []
    while open_at_end is not None:
        closers.append(_CLOSER[open_at_end.bracket])
        open_at_end = open_at_end.below
    return text[:end] + "".join(closers)
