"""Tool arguments as a JSON object, also when the answer ended before they did."""

from __future__ import annotations

import re

import msgspec

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_CLOSER = {"{": "}", "[": "]"}


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
    open_brackets: list[str] = []
    kept, at, keyed = "", 0, False
    while match := _TOKEN.match(text, at):
        token, at = match.group(), match.end()
        whole_value = False
        if token in _CLOSER:
            open_brackets.append(token)
            keyed = False
            kept = text[:at] + _closers(open_brackets)
        elif token in ("}", "]"):
            if not open_brackets or _CLOSER[open_brackets.pop()] != token:
                break
            whole_value = True
        elif token == ":":
            keyed = True
        elif token == ",":
            keyed = False
        elif not token.isspace():
            # A number at the very end may be the beginning of a longer one.
            in_list = bool(open_brackets) and open_brackets[-1] == "["
            whole_value = (keyed or in_list) and (token.startswith('"') or at < len(text))
        if whole_value:
            kept = text[:at] + _closers(open_brackets)
    return kept


def _closers(open_brackets: list[str]) -> str:
    return "".join(_CLOSER[bracket] for bracket in reversed(open_brackets))
