"""A call written as a JSON object: ``{"name": …, "arguments": {…}}`` and its variants.

Arguments are passed on exactly as the model wrote them, with three exceptions: absent, null or empty arguments become
``{}``; an object that was encoded once more as a string is decoded; and when markup cuts an object short, the missing
brackets stay missing.
"""

from __future__ import annotations

from millstream.parsing.scan.json_text import StringDecoder, json_string, json_value
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Sink, Steps, discard
from millstream.parsing.tools.format import Toolbox

NAME_KEYS = frozenset({"name", "function", "tool_name"})
ARGUMENT_KEYS = frozenset({"arguments", "parameters", "args", "input"})
ID_KEYS = frozenset({"id", "call_id"})
_CALL_KEYS = NAME_KEYS | ARGUMENT_KEYS | ID_KEYS | {"type"}


def any_name(name: str) -> bool:
    """What stands behind a marker is a call, whatever its name: the client answers a call of an unknown tool with an
    error from which the model can recover."""
    return True


class _Call:
    """What is known of the call that is being read. Behind a marker the name makes it certain; a bare object is a call
    once it has the name of a declared tool and an object of arguments, or ends without any where the tool needs none.
    """

    def __init__(self, scanner: Scanner, declared: Toolbox | None) -> None:
        self.scanner = scanner
        self.declared = declared
        self.id: str | None = None
        self.name = ""
        self.started = False
        self.has_arguments = False
        self._early: list[str] = []

    @property
    def bare(self) -> bool:
        return self.declared is not None

    def named(self, name: str) -> bool:
        """The name is known; False if no call can have it."""
        if not name or (self.declared is not None and name not in self.declared):
            return False
        self.name = name
        if not self.bare or self.has_arguments:
            self._start()
        return True

    def begin_arguments(self) -> None:
        """An object of arguments begins."""
        self.has_arguments = True
        if self.name and not self.started:
            self._start()

    def args(self, text: str) -> None:
        if self.started:
            self.scanner.args(text)
        else:
            self._early.append(text)

    def end(self, *, whole: bool) -> bool:
        """The object ends here, ``whole`` or not; whether it was a call."""
        declared = self.declared
        if declared and whole and self.name and not self.started and not declared.needs_arguments(self.name):
            self._start()
        if self.started:
            if not self.has_arguments:
                self.scanner.args("{}")
            self.scanner.end_call()
        return self.started

    def _start(self) -> None:
        self.started = True
        self.scanner.start_call(self.name, self.id)
        self.scanner.args("".join(self._early))


def json_call(scanner: Scanner, stops: Markers, declared: Toolbox | None = None) -> Steps[bool]:
    """Reads a call whose opening brace comes next.

    Args:
        stops: markers that end the call wherever they stand outside a JSON string.
        declared: given where nothing but its content says that the object is a call: then it must be one of these
            tools, and no foreign key may stand before it is certain, as an answer in JSON must not be held back whole.

    Returns:
        True: there was a call; its end was reported, and if its text went wrong after the name, what was read of the
        arguments was too. False: no call; nothing was reported (the caller gives the recorded text back).

    Raises:
        EndOfInput: the input ended within the call.
    """
    call = _Call(scanner, declared)
    scanner.take(1)
    depth = 1
    while depth:
        yield from scanner.space()
        char = yield from scanner.peek()
        if char in {"}", ","}:
            scanner.take(1)
            depth -= char == "}"
        elif char == '"':
            entered = yield from _member(call, stops)
            if entered is None:
                break
            depth += entered
        elif not scanner.drop_special(stops):
            break
    return call.end(whole=depth == 0)


def _member(call: _Call, stops: Markers) -> Steps[bool | None]:
    """One key and its value. True: the value is an object whose members belong to the call. None: no valid member."""
    scanner = call.scanner
    key = yield from json_string(scanner, stops)
    if key is None or (call.bare and not call.started and key not in _CALL_KEYS):
        return None
    yield from scanner.space()
    if (yield from scanner.peek()) != ":":
        return None
    scanner.take(1)
    yield from scanner.space()
    char = yield from scanner.peek()
    if key == "function" and char == "{" and not call.name:
        scanner.take(1)
        return True
    if key in NAME_KEYS and char == '"' and not call.name:
        name = yield from json_string(scanner, stops)
        return False if name is not None and call.named(name) else None
    if key in ID_KEYS and char == '"' and not call.started:
        call.id = yield from json_string(scanner, stops)
        return False
    if key in ARGUMENT_KEYS and not call.has_arguments:
        return False if (yield from _arguments(call, char, stops)) else None
    return False if (yield from json_value(scanner, discard, stops)) else None


def _arguments(call: _Call, char: str, stops: Markers) -> Steps[bool]:
    """The value of the arguments key, which begins with ``char``. False: cut short by a marker, or no arguments of a
    bare call."""
    if char == "{":
        call.begin_arguments()
        return (yield from json_value(call.scanner, call.args, stops))
    if call.bare and char != "n":
        return False
    parts: list[str] = []
    encoded = _EncodedObject(call.args) if char == '"' else None
    complete = yield from json_value(call.scanner, encoded.feed if encoded else parts.append, stops)
    given = encoded.any if encoded else "".join(parts) not in {"", "null"}
    if call.bare and given:
        return False
    call.has_arguments = given
    call.args("".join(parts) if call.has_arguments else "")
    return complete


class _EncodedObject:
    """Arguments that come as a JSON string: what it holds if that is an object, else the string as written."""

    def __init__(self, sink: Sink) -> None:
        self.any = False
        self._sink = sink
        self._decoder = StringDecoder()
        self._undecided: list[str] | None = []
        self._as_written = False

    def feed(self, raw: str) -> None:
        decoded = self._decoder.feed(raw)
        if self._undecided is None:
            self._sink(raw if self._as_written else decoded)
            return
        self._undecided.append(raw)
        if decoded := decoded.lstrip():
            self.any = True
            self._as_written = decoded[0] != "{"
            self._sink("".join(self._undecided) if self._as_written else decoded)
            self._undecided = None
