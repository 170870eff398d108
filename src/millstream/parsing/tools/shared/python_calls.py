"""Calls in Python's notation: ``f(a=1, b="x")``, alone, one after another, or in a list."""

from __future__ import annotations

import re
from collections.abc import Callable

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox
from millstream.parsing.tools.shared.arguments import ArgumentsWriter
from millstream.parsing.tools.shared.literals import PYTHON, atom_json, literal

NAME = re.compile(r"[\w.\-]*")
_EQUALS = re.compile(r"=*")


def python_calls(
    scanner: Scanner, marker: str, closes: Markers, tools: Toolbox, accepts: Callable[[str], bool]
) -> Steps[bool]:
    """Reads the calls behind ``marker``, which was read last, and one of ``closes`` if it follows.

    ``print(f(…))`` counts as ``f(…)``, unless there is a tool named print. Positional arguments take the names of the
    tool's parameters in their order.

    Returns:
        Whether a call was found whose closing marker has not come yet.
    """
    scanner.record(marker)
    found = False
    closing = ""
    while True:
        yield from scanner.space()
        char = yield from scanner.peek()
        if char == "[" and not (found or closing):
            closing = "]"
            scanner.take(1)
        elif found and char and char in "],;)":
            scanner.take(1)
            if char == closing:
                yield from scanner.space()
                break
        else:
            if found:
                scanner.record()
            if not (yield from _call(scanner, tools, accepts)):
                break
            found = True
    if scanner.recording:
        scanner.reject()
        return found
    return (yield from scanner.accept(closes)) is None


def _call(scanner: Scanner, tools: Toolbox, accepts: Callable[[str], bool]) -> Steps[bool]:
    """One call. False: there is none, or it broke off."""
    name = yield from scanner.run(NAME)
    while name == "print" and name not in tools and (yield from scanner.peek()) == "(":
        scanner.take(1)
        name = yield from scanner.run(NAME)
    if not name or not accepts(name) or (yield from scanner.peek()) != "(":
        return False
    scanner.take(1)
    scanner.start_call(name)
    properties = tools.properties(name)
    arguments = ArgumentsWriter(scanner.args, properties)
    unnamed = iter(properties)
    while True:
        yield from scanner.space()
        char = yield from scanner.peek()
        if char == ")":
            scanner.take(1)
            arguments.close()
            scanner.end_call()
            return True
        if char == ",":
            scanner.take(1)
        elif not (yield from _argument(scanner, arguments, next(unnamed, None))):
            scanner.end_call()
            return False


def _argument(scanner: Scanner, arguments: ArgumentsWriter, position: str | None) -> Steps[bool]:
    """One argument; ``position`` is the name it takes if it has none of its own. False: it is none."""
    word = yield from scanner.run(NAME)
    yield from scanner.space()
    char = yield from scanner.peek()
    if word and char == "=":
        yield from scanner.run(_EQUALS)
        arguments.key(word)
        return (yield from literal(scanner, arguments.sink))
    if position is None:
        return False
    if word:
        arguments.key(position)
        arguments.sink(atom_json(word))
        return char in {",", ")"}
    if char not in "[({" and (yield from scanner.ahead(PYTHON.quotes)) is None:
        return False
    arguments.key(position)
    return (yield from literal(scanner, arguments.sink))
