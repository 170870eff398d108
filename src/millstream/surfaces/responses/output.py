"""Output items while they grow. Each tells its events to a ladder and can show its body at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from millstream.ir.deltas import TokenLogprob
from millstream.surfaces.openai_common import chat_logprobs
from millstream.surfaces.responses.custom_input import InputReader
from millstream.surfaces.responses.items import new_id, sealed_reasoning
from millstream.surfaces.responses.ladder import Ladder, delta_head
from millstream.surfaces.responses.tools import ToolName

Status = Literal["in_progress", "completed", "incomplete"]


class _Item:
    """What all items share: one id, a place in the output, the events of their beginning and end.

    ``status`` is in_progress until the item is closed. ``whole``: it may end here, nothing that it holds is cut.
    """

    kind = ""

    def __init__(self, ladder: Ladder, index: int) -> None:
        self._ladder = ladder
        self._index = index
        self._heads: dict[str, bytes] = {}
        self.id = new_id(self.kind)
        self.status: Status = "in_progress"

    @property
    def whole(self) -> bool:
        return False

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def _tell(self, kind: str, **fields: Any) -> None:
        self._ladder.tell(kind, {"item_id": self.id, "output_index": self._index, **fields})

    def _more(self, kind: str, text: str, **place: Any) -> None:
        """An event that carries more text and is alike in all else."""
        head = self._heads.get(kind)
        if head is None:
            fields = {"item_id": self.id, "output_index": self._index, **place}
            head = self._heads[kind] = delta_head(kind, fields)
        self._ladder.more(head, text)

    def _added(self) -> None:
        self._ladder.tell("response.output_item.added", {"output_index": self._index, "item": self.body()})

    def _done(self, status: Status) -> None:
        self.status = status
        self._ladder.tell("response.output_item.done", {"output_index": self._index, "item": self.body()})


class MessageItem(_Item):
    """Visible text, or a refusal."""

    kind = "message"

    def __init__(self, ladder: Ladder, index: int) -> None:
        super().__init__(ladder, index)
        self._text: list[str] | None = None
        self._logprobs: list[dict[str, Any]] = []
        self._refusal: str | None = None
        self._added()

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """More text; the first opens its part."""
        if self._text is None:
            self._text = []
            self._tell("response.content_part.added", content_index=0, part=self._text_part())
        self._text.append(text)
        if not logprobs:
            self._more("response.output_text.delta", text, content_index=0, logprobs=())
            return
        entries: list[dict[str, Any]] = chat_logprobs(logprobs)["content"]
        self._logprobs += entries
        self._tell("response.output_text.delta", content_index=0, delta=text, logprobs=entries)

    def refuse(self, text: str) -> None:
        """The refusal, whole, in an item without text."""
        self._refusal = text
        self._tell("response.content_part.added", content_index=0, part={"type": "refusal", "refusal": ""})
        self._more("response.refusal.delta", text, content_index=0)
        self._tell("response.refusal.done", content_index=0, refusal=text)
        self._tell("response.content_part.done", content_index=0, part={"type": "refusal", "refusal": text})

    def close(self, status: Status) -> None:
        self._close_text()
        self._done(status)

    def body(self) -> dict[str, Any]:
        content = [] if self._text is None else [self._text_part()]
        if self._refusal is not None:
            content.append({"type": "refusal", "refusal": self._refusal})
        return {"id": self.id, "type": "message", "status": self.status, "role": "assistant", "content": content}

    def _close_text(self) -> None:
        if self._text is None:
            return
        part = self._text_part()
        self._tell("response.output_text.done", content_index=0, text=part["text"], logprobs=self._logprobs)
        self._tell("response.content_part.done", content_index=0, part=part)

    def _text_part(self) -> dict[str, Any]:
        text = "".join(self._text or ())
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(self._logprobs)}


class ReasoningItem(_Item):
    """Thinking text. With ``summary`` it is told as its own summary too; ``sealed``: it carries encrypted_content."""

    kind = "reasoning"

    def __init__(self, ladder: Ladder, index: int, *, summary: bool, sealed: bool) -> None:
        super().__init__(ladder, index)
        self._summary = summary
        self._sealed = sealed
        self._pieces: list[str] = []
        self._added()
        self._tell("response.content_part.added", content_index=0, part=_part("reasoning_text", ""))
        if summary:
            self._tell("response.reasoning_summary_part.added", summary_index=0, part=_part("summary_text", ""))

    def text(self, text: str) -> None:
        """More thinking."""
        self._pieces.append(text)
        self._more("response.reasoning_text.delta", text, content_index=0)
        if self._summary:
            self._more("response.reasoning_summary_text.delta", text, summary_index=0)

    def close(self, status: Status) -> None:
        text = "".join(self._pieces)
        self._tell("response.reasoning_text.done", content_index=0, text=text)
        self._tell("response.content_part.done", content_index=0, part=_part("reasoning_text", text))
        if self._summary:
            self._tell("response.reasoning_summary_text.done", summary_index=0, text=text)
            self._tell("response.reasoning_summary_part.done", summary_index=0, part=_part("summary_text", text))
        self._done(status)

    def body(self) -> dict[str, Any]:
        text = "".join(self._pieces)
        body: dict[str, Any] = {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": [_part("summary_text", text)] if self._summary and text else [],
            "content": [_part("reasoning_text", text)] if text else [],
        }
        if self._sealed:
            body["encrypted_content"] = sealed_reasoning(text) if text else None
        return body


class FunctionCallItem(_Item):
    """A call of a function; its arguments are JSON text."""

    kind = "function_call"

    def __init__(self, ladder: Ladder, index: int, call_id: str, name: ToolName) -> None:
        super().__init__(ladder, index)
        self._head = _call_head(call_id, name)
        self._fragments: list[str] = []
        self._added()

    @property
    def whole(self) -> bool:
        return _is_object("".join(self._fragments))

    def arguments(self, fragment: str) -> None:
        """More of the arguments."""
        if fragment:
            self._fragments.append(fragment)
            self._more("response.function_call_arguments.delta", fragment)

    def close(self, status: Status) -> None:
        self._tell("response.function_call_arguments.done", arguments="".join(self._fragments))
        self._done(status)

    def body(self) -> dict[str, Any]:
        arguments = "".join(self._fragments)
        return {"id": self.id, "type": self.kind, "status": self.status, **self._head, "arguments": arguments}


class CustomCallItem(_Item):
    """A call of a custom tool; its input is free text."""

    kind = "custom_tool_call"

    def __init__(self, ladder: Ladder, index: int, call_id: str, name: ToolName) -> None:
        super().__init__(ladder, index)
        self._head = _call_head(call_id, name)
        self._fragments: list[str] = []
        self._reader = InputReader()
        self._pieces: list[str] = []
        self._added()

    @property
    def whole(self) -> bool:
        return _is_object("".join(self._fragments))

    def arguments(self, fragment: str) -> None:
        """More of the JSON that holds the input."""
        self._fragments.append(fragment)
        self._input(self._reader.feed(fragment))

    def close(self, status: Status) -> None:
        self._input(self._reader.finish())
        self._tell("response.custom_tool_call_input.done", input="".join(self._pieces))
        self._done(status)

    def body(self) -> dict[str, Any]:
        text = "".join(self._pieces)
        return {"id": self.id, "type": self.kind, "status": self.status, **self._head, "input": text}

    def _input(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._more("response.custom_tool_call_input.delta", text)


CallItem = FunctionCallItem | CustomCallItem


def _call_head(call_id: str, name: ToolName) -> dict[str, Any]:
    head: dict[str, Any] = {"call_id": call_id, "name": name.name}
    if name.namespace is not None:
        head["namespace"] = name.namespace
    return head


def _part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text}


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
