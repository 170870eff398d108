"""Input items: what clients send, made regular; and regular items as the messages of a conversation.

A regular item is a JSON object as OpenAI lists it under ``input_items``: it has a type and an id, and its content is a
list of parts. Items of stored answers are regular already.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream.ir.errors import ApiError, invalid, missing
from millstream.ir.request import Message, ToolCall
from millstream.surfaces.responses.tools import ToolSet

Item = dict[str, Any]

OWN_REASONING = "millstream-1."
"""How our own ``encrypted_content`` begins; whatever else comes is another server's and cannot be read."""

HOSTED_ITEMS = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
"""What hosted tools did in answers of other servers. What came of it is in the messages."""

MAX_REASONING = 4 * 1024 * 1024

_ID_PREFIX = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
}
_OUTPUT_OF = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_INPUT_ROLES = ("user", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class WirePart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    refusal: str | None = None


class WireItem(msgspec.Struct, frozen=True):
    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[WirePart] | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[WirePart] | None = None
    summary: list[WirePart] | None = None
    encrypted_content: str | None = None


def new_id(kind: str) -> str:
    """A fresh id for an item of a type."""
    return _ID_PREFIX[kind] + secrets.token_hex(16)


def references(wire: str | list[WireItem] | None) -> list[str]:
    """Ids of the stored items that an input refers to."""
    if wire is None or isinstance(wire, str):
        return []
    return [item.id for item in wire if item.type == "item_reference" and item.id]


def regular_items(wire: str | list[WireItem] | None, stored: Mapping[str, Item]) -> list[Item]:
    """The input as regular items; references are replaced by what ``stored`` has under their id.

    Raises:
        ApiError: 400 with the path of an item or part that cannot be used.
    """
    if wire is None:
        return []
    if isinstance(wire, str):
        return [_with_id({"type": "message", "role": "user", "content": [_input_text(wire)]}, None, set())]
    taken: set[str] = set()
    return [
        _regular(item, f"input[{position}]", stored, taken)
        for position, item in enumerate(wire)
        if item.type not in HOSTED_ITEMS
    ]


def left_out(wire: str | list[WireItem] | None) -> list[str]:
    """Types of the items that `regular_items` leaves out."""
    if wire is None or isinstance(wire, str):
        return []
    return sorted({item.type for item in wire if item.type in HOSTED_ITEMS})


def conversation(items: Iterable[Item], tools: ToolSet) -> list[Message]:
    """The messages that regular items tell. An assistant's turn (reasoning, text, calls) is one message."""
    messages: list[Message] = []
    turn = _Turn()
    for item in items:
        kind = item["type"]
        if kind == "message" and item["role"] != "assistant":
            turn.close(messages)
            messages.append(Message(item["role"], _text(item["content"])))
        elif kind in _OUTPUT_OF:
            turn.close(messages)
            output = item["output"]
            content = output if isinstance(output, str) else _text(output)
            messages.append(Message("tool", content, tool_call_id=item["call_id"]))
        else:
            if kind == "message" and turn.last == "message":
                if _only_refuses(item):
                    continue  # it says again what the message before it said
                turn.close(messages)
            turn.add(item, tools)
    turn.close(messages)
    return messages


def sealed_reasoning(text: str) -> str:
    """Reasoning as ``encrypted_content``: opaque to clients, readable here. It is packed, not encrypted."""
    return OWN_REASONING + base64.urlsafe_b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode()


def unsealed_reasoning(sealed: str | None) -> str | None:
    """The text of our own ``encrypted_content``; None if it is another's, damaged or larger than any reasoning."""
    if sealed is None or not sealed.startswith(OWN_REASONING):
        return None
    try:
        packed = base64.b64decode(sealed[len(OWN_REASONING) :], altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, MAX_REASONING)
        return raw.decode() if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError):
        return None


class _Turn:
    """An assistant's turn that is being put together. ``last``: type of its newest item."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._spoke = False
        self.last: str | None = None

    def add(self, item: Item, tools: ToolSet) -> None:
        kind = self.last = item["type"]
        if kind == "message":
            self._spoke = True
            self._text.append(_text(item["content"]))
        elif kind == "reasoning":
            self._reasoning.append(_reasoning(item))
        else:
            name = tools.flat_name(item["name"], item.get("namespace"))
            if kind == "function_call":
                arguments = item["arguments"]
            else:
                arguments = msgspec.json.encode({"input": item["input"]}).decode()
            self._calls.append(ToolCall(item["call_id"], name, arguments))

    def close(self, messages: list[Message]) -> None:
        reasoning = "".join(self._reasoning)
        # Reasoning that another server sealed leaves nothing to tell.
        if self._spoke or reasoning or self._calls:
            messages.append(Message("assistant", "".join(self._text), reasoning or None, tuple(self._calls)))
        self._reset()


def _text(parts: list[dict[str, Any]]) -> str:
    """The text of a content; a refusal counts if it is all there is, as it repeats the text else."""
    texts = [part["text"] for part in parts if part["type"] != "refusal"]
    return "".join(texts or [part["refusal"] for part in parts])


def _only_refuses(item: Item) -> bool:
    return bool(item["content"]) and all(part["type"] == "refusal" for part in item["content"])


def _reasoning(item: Item) -> str:
    own = unsealed_reasoning(item.get("encrypted_content"))
    return own if own is not None else _text(item.get("content") or item.get("summary") or [])


def _regular(wire: WireItem, path: str, stored: Mapping[str, Item], taken: set[str]) -> Item:
    kind = wire.type or ("message" if wire.role is not None else None)
    if kind == "message":
        body = _message(wire, path)
    elif kind == "reasoning":
        body = _reasoning_item(wire, path)
    elif kind in ("function_call", "custom_tool_call"):
        body = _call(wire, kind, path)
    elif kind in _OUTPUT_OF:
        output = _required(wire.output, f"{path}.output")
        parts = output if isinstance(output, str) else _parts(output, f"{path}.output", "input_text")
        body = {"type": kind, "call_id": _required(wire.call_id, f"{path}.call_id"), "output": parts}
        body["status"] = "completed"
    elif kind == "item_reference":
        return _referenced(wire, path, stored)
    else:
        raise _unknown_item(kind, path)
    return _with_id(body, wire.id, taken)


def _message(wire: WireItem, path: str) -> Item:
    role = _required(wire.role, f"{path}.role")
    if role not in (*_INPUT_ROLES, "assistant"):
        raise invalid(
            f"{path}.role must be user, system, developer or assistant, got {role[:64]!r}.", param=f"{path}.role"
        )
    default = "output_text" if role == "assistant" else "input_text"
    content = _required(wire.content, f"{path}.content")
    parts = content if not isinstance(content, str) else [WirePart(default, content)]
    status = wire.status if wire.status in ("completed", "incomplete") else "completed"
    regular = _parts(parts, f"{path}.content", default)
    return {"type": "message", "role": role, "status": status, "content": regular}


def _parts(wire: list[WirePart], path: str, kind: str) -> list[dict[str, Any]]:
    """Text parts of one kind, and refusals among an assistant's."""
    parts: list[dict[str, Any]] = []
    for position, part in enumerate(wire):
        where = f"{path}[{position}]"
        if part.type == "refusal" and kind == "output_text":
            parts.append({"type": "refusal", "refusal": _required(part.refusal, f"{where}.refusal")})
            continue
        if part.type not in _TEXT_PARTS:
            raise invalid(
                f"{where}: parts of type {part.type[:64]!r} are not supported; send text parts only.",
                param=where,
                code="unsupported_parameter",
            )
        text = _required(part.text, f"{where}.text")
        parts.append(
            _input_text(text) if kind == "input_text" else {"type": kind, "text": text, **_EXTRAS.get(kind, {})}
        )
    return parts


_EXTRAS: dict[str, dict[str, Any]] = {"output_text": {"annotations": [], "logprobs": []}}


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _reasoning_item(wire: WireItem, path: str) -> Item:
    summary = _parts(wire.summary or [], f"{path}.summary", "summary_text")
    body: Item = {"type": "reasoning", "summary": summary, "status": "completed"}
    if isinstance(wire.content, str):
        raise invalid(f"{path}.content must be an array of parts.", param=f"{path}.content")
    if wire.content:
        body["content"] = _parts(wire.content, f"{path}.content", "reasoning_text")
    if wire.encrypted_content is not None:
        body["encrypted_content"] = wire.encrypted_content
    return body


def _call(wire: WireItem, kind: str, path: str) -> Item:
    value = "arguments" if kind == "function_call" else "input"
    body: Item = {
        "type": kind,
        "call_id": _required(wire.call_id, f"{path}.call_id"),
        "name": _required(wire.name, f"{path}.name"),
        value: _required(getattr(wire, value), f"{path}.{value}"),
        "status": "completed",
    }
    if wire.namespace is not None:
        body["namespace"] = wire.namespace
    return body


def _referenced(wire: WireItem, path: str, stored: Mapping[str, Item]) -> Item:
    found = stored.get(_required(wire.id, f"{path}.id"))
    if found is None:
        raise invalid(
            f"{path}: no item {str(wire.id)[:128]!r} is stored here. Send the item itself.",
            param=f"{path}.id",
            code="item_not_found",
        )
    return dict(found)


def _with_id(body: Item, wanted: str | None, taken: set[str]) -> Item:
    """Clients may send the same id twice; a list that is read page by page needs each once."""
    identity = wanted if wanted and wanted not in taken and len(wanted) <= 256 else new_id(body["type"])
    taken.add(identity)
    return {"id": identity, **body}


def _required(value: Any, path: str) -> Any:
    if value is None:
        raise missing(path)
    return value


def _unknown_item(kind: str | None, path: str) -> ApiError:
    if kind is None:
        return invalid(
            f"{path}.type is required (only a message with a role may lack it).",
            param=f"{path}.type",
            code="missing_required_parameter",
        )
    return invalid(
        f"{path}: items of type {kind[:64]!r} are not supported.", param=f"{path}.type", code="unsupported_parameter"
    )
