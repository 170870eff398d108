"""GLM 4.5 and later (4.6 and 4.7 write it without the newlines):

<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>Paris</arg_value>
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Steps
from millstream.parsing.tools.format import Toolbox, ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.arguments import ArgumentsWriter
from millstream.parsing.tools.shared.outer import text_and_calls
from millstream.parsing.tools.shared.schemas import CannotHold
from millstream.parsing.tools.shared.tagged import tagged_value
from millstream.parsing.tools.shared.text_values import Style, TextParameters

_OPEN = Markers(["<tool_call>"])
_CLOSE = Markers(["</tool_call>"])
_KEY = Markers(["<arg_key>"])
_KEY_CLOSE = Markers(["</arg_key>"])
_VALUE = Markers(["<arg_value>"])
_VALUE_CLOSE = Markers(["</arg_value>"])
_AFTER_NAME = Markers(["<arg_key>", "</tool_call>"])
_AFTER_VALUE = Markers(["<arg_key>", "<tool_call>", "</tool_call>"])
_NAME = re.compile(r"[^\s<>{}]*")
_KEY_TEXT = re.compile(r"[^<>]*")


class GlmCalls:
    """The parser. A name counts once a tag of the format stands behind it."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools

    def steps(self, scanner: Scanner) -> Steps[None]:
        """The whole output."""
        return text_and_calls(scanner, _OPEN, _CLOSE, lambda marker: self._call(scanner))

    def _call(self, scanner: Scanner) -> Steps[bool]:
        """From the name to the closing tag. Whether a call was found whose closing tag has not come yet."""
        yield from scanner.space()
        name = yield from scanner.run(_NAME)
        yield from scanner.space()
        if not name or (yield from scanner.ahead(_AFTER_NAME)) is None:
            scanner.reject()
            return False
        scanner.start_call(name)
        arguments = ArgumentsWriter(scanner.args, self._tools.properties(name))
        while (yield from scanner.accept(_KEY)) is not None:
            if not (yield from self._parameter(scanner, arguments)):
                break
            yield from scanner.space()
        arguments.close()
        scanner.end_call()
        if scanner.recording:
            scanner.reject()
            return True
        return (yield from scanner.accept(_CLOSE)) is None

    def _parameter(self, scanner: Scanner, arguments: ArgumentsWriter) -> Steps[bool]:
        scanner.record("<arg_key>")
        try:
            key = (yield from scanner.run(_KEY_TEXT)).strip()
            closed = yield from scanner.accept(_KEY_CLOSE)
            yield from scanner.space()
            if not key or closed is None or (yield from scanner.accept(_VALUE)) is None:
                return False
        except EndOfInput:
            scanner.forget()
            raise
        scanner.forget()
        value = arguments.value(key)
        yield from tagged_value(scanner, value, value.feed, _VALUE_CLOSE, _AFTER_VALUE)
        return True


def _readable(name: str) -> bool:
    return bool(name.strip()) and name == name.strip() and _KEY_TEXT.fullmatch(name) is not None


_STYLE = Style(lambda string: ("<arg_key>", "</arg_key>", "<arg_value>"), "</arg_value>", _readable)


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    values = TextParameters(_STYLE, control_tokens)

    def call(tool: Tool) -> str:
        if _NAME.fullmatch(tool.name) is None:
            raise CannotHold(tool.name, "", "the format cannot write this name")
        close = grammar.marker("</tool_call>", control_tokens)
        return f"ws {grammar.quoted(tool.name)} ws {values.members(tool)} {close}"

    lark = [grammar.rules("rest", tools, call)]
    lark.append(values.rules)
    openings = {"<tool_call>": "rest"}
    return grammar.answer(openings, "\n".join(lark), control_tokens, required=required, parallel=parallel)


FORMAT = ToolFormat(
    name="glm",
    steps=lambda tools: GlmCalls(tools).steps,
    constrain=constrain,
    detect=lambda source, tokens: "<arg_key>" in source and "<arg_value>" in source,
)
