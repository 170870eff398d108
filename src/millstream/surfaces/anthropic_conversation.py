"""The turns of a Messages request as IR messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from millstream.ir.errors import ApiError, invalid
from millstream.ir.request import Message, ToolCall
from millstream.ir.turns import join_texts, merge_neighbours
from millstream.surfaces.anthropic_common import carried_thinking
from millstream.surfaces.anthropic_tools import Toolbox, WireTool
from millstream.surfaces.openai_params import wrong_type

ROLES = ("user", "assistant", "system")
TOOL_ERROR = "[tool error]\n"
"""Before the content of a failed tool result: chat templates have no other place for the fact."""

_FOREIGN_BLOCK = re.compile(
    r"^(server_tool_use|redacted_thinking|mcp_tool_use|mcp_tool_listing|fallback|\w+_tool_result)$"
)
_BILLING_LINES = re.compile(r"\A(?:x-anthropic-[^\n]*(?:\n|\Z))+")

T = TypeVar("T")


class WireBlock(msgspec.Struct, frozen=True):
    """Any content block; which members it needs depends on its type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None
    tool: Any = None
    tool_name: str | None = None


class WireToolChange(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    definition: WireTool | None = None


class WireMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[WireBlock] | None = None
    clear_at: str | None = None


def system_message(wire: str | list[WireBlock] | None) -> list[Message]:
    """The system prompt as at most one message."""
    if wire is None:
        return []
    texts = [wire] if isinstance(wire, str) else [_text(block, f"system[{k}]") for k, block in enumerate(wire)]
    text = join_texts(map(without_billing, texts))
    return [Message("system", text)] if text else []


def without_billing(text: str) -> str:
    """Without the leading ``x-anthropic-…`` lines: a client's billing notes, which differ from request to request."""
    return _BILLING_LINES.sub("", text)


def conversation(wire: Sequence[WireMessage], tools: Toolbox) -> list[Message]:
    """The turns in order, neighbours of one role merged. References to tools change what ``tools`` offers.

    Raises:
        ApiError: 400 with the path of the block at fault.
    """
    turns: list[Message] = []
    last_user = max((k for k, message in enumerate(wire) if message.role == "user"), default=-1)
    for position, message in enumerate(wire):
        path = f"messages[{position}]"
        if message.role not in ROLES:
            shown = message.role[:64]
            raise invalid(f"{path}.role must be one of {', '.join(ROLES)}, got {shown!r}.", param=f"{path}.role")
        if message.content is None and message.role != "system":
            raise _missing(f"{path}.content")
        blocks = _blocks(message.content)
        if message.role == "assistant":
            added = [_assistant(blocks, path)]
        elif message.role == "user":
            added = _user(blocks, tools, path)
        else:
            added = _system(blocks, tools, path)
            if message.clear_at == "next_user_message" and position < last_user:
                added = []
        turns += added
    return merge_neighbours(turns)


def _blocks(content: str | list[WireBlock] | None) -> list[WireBlock]:
    return [WireBlock("text", text=content)] if isinstance(content, str) else content or []


def _assistant(blocks: list[WireBlock], path: str) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for position, block in enumerate(blocks):
        where = f"{path}.content[{position}]"
        if block.type == "thinking":
            thoughts.append(block.thinking or carried_thinking(block.signature or "") or "")
        elif block.type == "tool_use":
            calls.append(_call(block, where))
        elif block.type == "text" or not _FOREIGN_BLOCK.match(block.type):
            texts.append(_text(block, where))
    # As the model wrote it: nothing between the parts.
    return Message("assistant", "".join(texts), reasoning="".join(thoughts) or None, tool_calls=tuple(calls))


def _call(block: WireBlock, path: str) -> ToolCall:
    if not block.id:
        raise _missing(f"{path}.id")
    if not block.name:
        raise _missing(f"{path}.name")
    arguments = bytes(block.input).decode() or "{}"
    if not arguments.startswith("{"):
        raise invalid(f"{path}.input must be an object.", param=f"{path}.input")
    return ToolCall(block.id, block.name, arguments)


def _user(blocks: list[WireBlock], tools: Toolbox, path: str) -> list[Message]:
    results: list[Message] = []
    texts: list[str] = []
    for position, block in enumerate(blocks):
        where = f"{path}.content[{position}]"
        if block.type == "tool_result":
            results.append(_result(block, tools, where))
        elif block.type == "text" or not _FOREIGN_BLOCK.match(block.type):
            texts.append(_text(block, where))
    # Results first, whatever their place: they answer the turn before.
    return results + ([Message("user", join_texts(texts))] if texts or not results else [])


def _result(block: WireBlock, tools: Toolbox, path: str) -> Message:
    if not block.tool_use_id:
        raise _missing(f"{path}.tool_use_id")
    content = block.content
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = _converted(content, list[WireBlock], f"{path}.content")
        text = join_texts([_result_part(part, tools, f"{path}.content[{k}]") for k, part in enumerate(parts)])
    return Message("tool", TOOL_ERROR + text if block.is_error else text, tool_call_id=block.tool_use_id)


def _result_part(part: WireBlock, tools: Toolbox, path: str) -> str:
    if part.type != "tool_reference":
        return _text(part, path)
    if not part.tool_name:
        raise _missing(f"{path}.tool_name")
    tools.offer(part.tool_name, f"{path}.tool_name")
    return part.tool_name


def _system(blocks: list[WireBlock], tools: Toolbox, path: str) -> list[Message]:
    texts: list[str] = []
    for position, block in enumerate(blocks):
        where = f"{path}.content[{position}]"
        if block.type in ("tool_addition", "tool_removal"):
            _change(block, tools, f"{where}.tool")
        else:
            texts.append(without_billing(_text(block, where)))
    text = join_texts(texts)
    return [Message("system", text)] if text else []


def _change(block: WireBlock, tools: Toolbox, path: str) -> None:
    change = _converted(block.tool, WireToolChange, path)
    if change.type == "tool_definition" and block.type == "tool_addition" and change.definition is not None:
        tools.declare(change.definition, f"{path}.definition")
    elif change.type == "tool_reference" and change.name:
        if block.type == "tool_addition":
            tools.offer(change.name, f"{path}.name")
        else:
            tools.withdraw(change.name)
    else:
        raise _unsupported(change.type, path)


def _text(block: WireBlock, path: str) -> str:
    if block.type != "text":
        raise _unsupported(block.type, path)
    if block.text is None:
        raise _missing(f"{path}.text")
    return block.text


def _converted(value: Any, kind: type[T], path: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, inner = str(error).partition(" - at `$")
        raise wrong_type(msgspec.ValidationError(f"{what} - at `$.{path}{inner or '`'}")) from None


def _unsupported(kind: str, path: str) -> ApiError:
    return invalid(
        f"{path}: blocks of type {kind[:64]!r} are not supported here.", param=path, code="unsupported_parameter"
    )


def _missing(path: str) -> ApiError:
    return invalid(f"{path} is required.", param=path, code="missing_required_parameter")
