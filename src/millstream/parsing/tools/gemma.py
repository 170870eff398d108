"""Gemma. Gemma 3 has no markup of its own; prompts in use ask for code fences or for the bare call:

    ```tool_code
    print(get_weather(city="Paris"))
    ```

    {"name": "get_weather", "parameters": {"city": "Paris"}}

FunctionGemma and Gemma 4 write a notation with bare keys and quoted strings:

    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>
    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox, ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.json_call import any_name
from millstream.parsing.tools.shared.literals import literal, syntax
from millstream.parsing.tools.shared.marked_json import bare_calls, marked_calls
from millstream.parsing.tools.shared.notation_grammar import Notation
from millstream.parsing.tools.shared.outer import text_and_calls
from millstream.parsing.tools.shared.python_calls import python_calls
from millstream.parsing.tools.shared.python_grammar import bare_list, python_rules
from millstream.parsing.tools.shared.schemas import CannotHold

_CODE = "```tool_code"
_JSON = "```json"
_FENCES = Markers([_CODE, "```tool_call", _JSON])
_FENCE_END = Markers(["```"])
_FENCE_ALL = Markers([*_FENCES.literals, "```"])

_NATIVE_MARKS = ("<start_function_call>", "<|tool_call>")
_NATIVE_ENDS = ("<end_function_call>", "<tool_call|>")
_NATIVE = Markers(_NATIVE_MARKS)
_NATIVE_END = Markers(_NATIVE_ENDS)
_CALL = Markers(["call:"])
_NAME = re.compile(r"[\w.\-]*")
_NOTATION = syntax(["<escape>", '<|"|>', '"'])


def _fenced(scanner: Scanner, tools: Toolbox) -> Steps[None]:
    first = yield from scanner.first(_FENCE_ALL)
    scanner.in_call = first in {"{", "["}
    if first == "{":
        yield from bare_calls(scanner, _FENCE_ALL, _FENCE_END, tools)
    elif first == "[":
        yield from python_calls(scanner, "", _FENCE_END, tools, tools.__contains__)
    scanner.in_call = False
    yield from text_and_calls(scanner, _FENCES, _FENCE_END, lambda marker: _fence(scanner, marker, tools))


def _fence(scanner: Scanner, marker: str, tools: Toolbox) -> Steps[bool]:
    """What stands in a fence. Only a fence named for tools makes a call of any name; JSON may be an answer."""
    marker += yield from scanner.space()
    if marker.startswith(_JSON):
        return (yield from marked_calls(scanner, marker, _FENCE_ALL, _FENCE_END, tools))
    if marker.startswith(_CODE) and (yield from scanner.peek()) != "{":
        return (yield from python_calls(scanner, marker, _FENCE_END, tools, any_name))
    return (yield from marked_calls(scanner, marker, _FENCE_ALL, _FENCE_END))


def _native(scanner: Scanner) -> Steps[None]:
    return text_and_calls(scanner, _NATIVE, _NATIVE_END, lambda marker: _native_call(scanner))


def _native_call(scanner: Scanner) -> Steps[bool]:
    yield from scanner.space()
    prefixed = yield from scanner.accept(_CALL)
    name = yield from scanner.run(_NAME)
    if prefixed is None or not name or (yield from scanner.peek()) != "{":
        scanner.reject()
        return False
    scanner.start_call(name)
    yield from literal(scanner, scanner.args, _NOTATION)
    scanner.end_call()
    yield from scanner.space()
    return (yield from scanner.accept(_NATIVE_END)) is None


def constrain_fenced(
    tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]
) -> str:
    """Grammar of Gemma 3: code in a fence."""
    listed = list(tools)
    lark = [python_rules(listed, parallel=parallel)]
    openings = {_CODE: "ws call" + (" (ws call)*" if parallel else "") + ' ws "```"'}
    if not required:
        lark.append(grammar.rules("object", tools, lambda tool: grammar.json_call(tool, "parameters")))
        lark.append(grammar.rules("tail", tools, lambda tool: grammar.json_tail(tool, "parameters")))
        openings["```tool_call"] = 'ws object ws "```"'
    return grammar.answer(
        openings,
        "\n".join(lark),
        control_tokens,
        required=required,
        parallel=False,
        bare=[grammar.bare_json("tail"), bare_list(listed)],
        fences={_JSON: grammar.bare_json('tail ws "```"')},
    )


def constrain_native(
    tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]
) -> str:
    """Grammar of FunctionGemma and of Gemma 4, whichever the vocabulary is of."""
    fourth = "<|tool_call>" in control_tokens
    notation = Notation('<|"|>' if fourth else "<escape>", control_tokens)
    names = {tool.name: notation.arguments(tool) for tool in tools if _readable(tool)}
    calls = grammar.rules("call", tools, lambda tool: f"ws {grammar.quoted('call:' + tool.name)} {names[tool.name]}")
    ends = dict(zip(_NATIVE_MARKS, _NATIVE_ENDS, strict=True))
    order = sorted(ends, key=lambda opening: (opening == "<|tool_call>") != fourth)
    openings = {opening: f"call ws {grammar.marker(ends[opening], control_tokens)}" for opening in order}
    lark = f"{calls}\n{notation.rules}"
    return grammar.answer(openings, lark, control_tokens, required=required, parallel=parallel)


def _readable(tool: Tool) -> bool:
    if _NAME.fullmatch(tool.name) is None:
        raise CannotHold(tool.name, "", "the format cannot write this name")
    return True


FORMAT = ToolFormat(
    name="gemma",
    constrain=constrain_fenced,
    steps=lambda tools: lambda scanner: _fenced(scanner, tools),
    detect=lambda source, tokens: "```tool_code" in source,
)
NATIVE = ToolFormat(
    name="gemma4",
    constrain=constrain_native,
    steps=lambda tools: _native,
    detect=lambda source, tokens: "<start_function_call>" in source or "<|tool_call>call:" in source,
)
