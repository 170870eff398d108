"""Calls for models whose chat template knows none: a prompt that teaches the hermes form, and its parser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millstream.ir.request import Message, Tool, ToolCall, ToolChoice
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.hermes import CLOSE, OPEN, constrain, parser


def system_prompt(tools: Sequence[Tool], choice: ToolChoice | None = None, *, parallel: bool = True) -> str:
    """What a model must be told so that it can call these tools.

    Args:
        choice: a required call, or the tools that it is narrowed to, are said too.
        parallel: whether several calls at once are wanted.
    """
    names = choice.names if choice is not None else ()
    lines = [
        "# Tools",
        "You can call these functions. Each line is one function as JSON; its parameters are a JSON schema.",
        "<tools>",
        *(_declaration(tool) for tool in tools if not names or tool.name in names),
        "</tools>",
        "To call a function, answer with a JSON object inside tool_call tags, and nothing else:",
        OPEN,
        '{"name": "<function name>", "arguments": {"<parameter>": <value>}}',
        CLOSE,
        "Write one such block for each call." if parallel else "Make one call at a time.",
        "Results come back inside tool_response tags.",
    ]
    required = choice is not None and choice.mode == "required"
    lines.append(
        "You must call a function now."
        if required
        else "Call a function only if it helps. Otherwise answer the user in plain text, without tags."
    )
    return "\n".join(lines)


def _declaration(tool: Tool) -> str:
    fields: dict[str, Any] = {"name": tool.name}
    if tool.description:
        fields["description"] = tool.description
    fields["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return json.dumps(fields, ensure_ascii=False)


def render_call(call: ToolCall) -> str:
    """An earlier call as the model would have written it. Arguments that are no JSON are shown as a string."""
    try:
        json.loads(call.arguments)
        arguments = call.arguments
    except (ValueError, RecursionError):
        arguments = json.dumps(call.arguments, ensure_ascii=False) if call.arguments else "{}"
    return f'{OPEN}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'


def render_result(message: Message) -> str:
    """A tool's result as text of a user's turn."""
    return f"<tool_response>\n{message.content}\n</tool_response>"


def rewrite(
    messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice | None = None, *, parallel: bool = True
) -> list[Message]:
    """The conversation for a template without tools: the prompt is added to the system message (a new one if there is
    none), calls become text of their turn, and results become user turns, neighbouring ones a single turn."""
    out: list[Message] = []
    after_result = False
    for message in messages:
        if message.role == "tool":
            text = render_result(message)
            if after_result:
                text = out.pop().content + "\n" + text
            out.append(Message("user", text))
        elif message.tool_calls:
            calls = "\n".join(render_call(call) for call in message.tool_calls)
            content = f"{message.content}\n{calls}" if message.content else calls
            out.append(Message("assistant", content, reasoning=message.reasoning))
        else:
            out.append(message)
        after_result = message.role == "tool"
    if not tools:
        return out
    prompt = system_prompt(tools, choice, parallel=parallel)
    if out and out[0].role in {"system", "developer"}:
        first = out[0]
        out[0] = Message(first.role, f"{first.content}\n\n{prompt}" if first.content else prompt, name=first.name)
    else:
        out.insert(0, Message("system", prompt))
    return out


FORMAT = ToolFormat(
    name="generic",
    steps=lambda tools: lambda scanner: parser(scanner, tools),
    constrain=constrain,
)
