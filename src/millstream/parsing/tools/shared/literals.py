"""Values in a programming language's notation, turned into JSON text while they are read.

Python literals, and with other quotes and bare keys the notation of Gemma's function calls. What has no JSON form is
given one that loses nothing: other number notations become decimal numbers, bare words and keys become strings.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Sink, Steps
from millstream.parsing.tools.shared.arguments import escaped

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_ATOM = re.compile(r"[\w.+\-]*")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True)
class Syntax:
    """``quotes``: markers that open and close a string. ``escapes``: whether a backslash means something in it."""

    quotes: Markers
    escapes: bool


PYTHON = Syntax(Markers(["'", '"', "'''", '"""']), escapes=True)


def syntax(quotes: Iterable[str]) -> Syntax:
    """A notation in which nothing is escaped."""
    return Syntax(Markers(quotes), escapes=False)


class _Container:
    """An open list or object."""

    def __init__(self, opener: str) -> None:
        self.closer = _CLOSERS[opener]
        self.is_object = opener == "{"
        self.awaits_key = self.is_object
        self.empty = True


def literal(scanner: Scanner, sink: Sink, notation: Syntax = PYTHON) -> Steps[bool]:
    """Reads one value and writes it as JSON. Nesting costs no recursion.

    Returns:
        False: what comes next is no value; what was read before was written.

    Raises:
        EndOfInput: the input ended within the value.
    """
    open_: list[_Container] = []
    while True:
        yield from scanner.space()
        inner = open_[-1] if open_ else None
        quote = yield from scanner.accept(notation.quotes)
        char = "" if quote is not None else (yield from scanner.peek())
        if inner is not None and char == inner.closer and inner.awaits_key == inner.is_object:
            scanner.take(1)
            sink("}" if inner.is_object else "]")
            open_.pop()
        else:
            _separate(inner, sink)
            if quote is not None:
                yield from _string(scanner, sink, quote, notation)
            elif char in _CLOSERS and not (inner is not None and inner.awaits_key):
                scanner.take(1)
                sink("{" if char == "{" else "[")
                open_.append(_Container(char))
                continue
            elif not (yield from _atom(scanner, sink, notation, key=inner is not None and inner.awaits_key)):
                return False
        if not open_:
            return True
        if not (yield from _next_member(scanner, sink, open_)):
            return not open_


def _separate(inner: _Container | None, sink: Sink) -> None:
    """Writes the comma before a member; a trailing comma of the source has none behind it and is never written."""
    if inner is None:
        return
    if not inner.empty and inner.awaits_key == inner.is_object:
        sink(", ")
    inner.empty = False


def _next_member(scanner: Scanner, sink: Sink, open_: list[_Container]) -> Steps[bool]:
    """From the end of a value to where the next one begins. False: all is closed, or something else stands there."""
    while open_:
        yield from scanner.space()
        char = yield from scanner.peek()
        inner = open_[-1]
        if inner.awaits_key and char == ":":
            inner.awaits_key = False
            sink(": ")
        elif char == "," and not inner.awaits_key:
            inner.awaits_key = inner.is_object
        elif char == inner.closer and not inner.awaits_key:
            sink("}" if inner.is_object else "]")
            open_.pop()
            scanner.take(1)
            continue
        else:
            return False
        scanner.take(1)
        return True
    return False


def _atom(scanner: Scanner, sink: Sink, notation: Syntax, *, key: bool) -> Steps[bool]:
    """A number, a word, or a string with a prefix."""
    atom = yield from scanner.run(_ATOM)
    if scanner.at_edge and scanner.closed:
        raise EndOfInput
    if not atom:
        return False
    if notation.escapes and atom.lower() in {"r", "u", "f", "b"}:
        quote = yield from scanner.accept(notation.quotes)
        if quote is not None:
            raw = Syntax(notation.quotes, escapes=atom.lower() != "r")
            yield from _string(scanner, sink, quote, raw)
            return True
    sink(json.dumps(atom, ensure_ascii=False) if key else atom_json(atom))
    return True


def atom_json(atom: str) -> str:
    """The JSON text of a number or a word."""
    if atom in _WORDS:
        return _WORDS[atom]
    if _NUMBER.match(atom):
        return atom
    try:
        value = ast.literal_eval(atom)
        if isinstance(value, (int, float)) and math.isfinite(value):
            return json.dumps(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, OverflowError):
        pass
    return json.dumps(atom, ensure_ascii=False)


def _string(scanner: Scanner, sink: Sink, quote: str, notation: Syntax) -> Steps[None]:
    """From behind the opening quote to behind the closing one."""
    sink('"')
    ends = Markers([quote, "\\"]) if notation.escapes else Markers([quote])
    while (yield from scanner.until(ends, lambda text: sink(escaped(text)), awaited=True)) != quote:
        yield from _escape(scanner, sink)
    sink('"')


def _escape(scanner: Scanner, sink: Sink) -> Steps[None]:
    """What stands behind a backslash."""
    char = yield from scanner.peek()
    scanner.take(len(char))
    if char not in _HEX_DIGITS:
        plain = _ESCAPES.get(char, char if char in "'\"\\" else "\\" + char)
        sink(escaped(plain))
        return
    digits = ""
    while len(digits) < _HEX_DIGITS[char]:
        digit = yield from scanner.peek()
        if not digit or digit not in "0123456789abcdefABCDEF":
            sink(escaped("\\" + char + digits))
            return
        digits += scanner.take(1)
    code = int(digits, 16)
    if 0xD800 <= code < 0xE000:
        sink(f"\\u{code:04x}")
    else:
        sink(escaped(chr(code) if code <= 0x10FFFF else "\\" + char + digits))
