"""The event ladder of a response: a state machine over deltas.

One item of text or reasoning is open at a time; a delta of another kind closes it. A call is closed when something
else begins and its arguments are a whole JSON object, or at the end. What the machine holds at the end is the response:
the answer that is not streamed is the same machine, silent.

`encode` of the last delta closes the items; the terminal event comes from `end`, so that the response can be stored
between the two.
"""

from __future__ import annotations

from typing import Any

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.fold import UsageCounter
from millstream.surfaces.openai_labels import TIER
from millstream.surfaces.responses.ladder import Ladder
from millstream.surfaces.responses.options import ABSENT_ECHO, ResponsesOptions, new_response_id, now
from millstream.surfaces.responses.output import (
    CallItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    ReasoningItem,
    Status,
)
from millstream.surfaces.responses.tools import ToolName
from millstream.surfaces.wire import WireOptions

_TERMINAL = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_NO_RESULT = Error("The stream ended without a result.")


class ResponsesEncoder:
    """One response. ``write`` False: no events are made, only the response object."""

    def __init__(
        self,
        options: WireOptions,
        *,
        response_id: str | None = None,
        created: int | None = None,
        write: bool = True,
    ) -> None:
        if not isinstance(options, ResponsesOptions):
            options = ResponsesOptions(model=options.model, logprobs=options.logprobs)
        self._options = options
        self.id = response_id or new_response_id()
        self.stored = False
        """Whether it was kept: what the finished response says under `store`."""
        self.created = now() if created is None else created
        self._ladder = Ladder(silent=not write)
        self._items: list[MessageItem | ReasoningItem | CallItem] = []
        self._calls: dict[int, CallItem] = {}
        self._usage = UsageCounter(1)
        self._status = "in_progress"
        self._completed_at: int | None = None
        self._error: Error | None = None
        self._incomplete: str | None = None
        self._refusal: str | None = None
        self._ended = False

    def start(self) -> bytes:
        self._ladder.tell("response.created", {"response": self.response()})
        self._ladder.tell("response.in_progress", {"response": self.response()})
        return self._ladder.take()

    def encode(self, delta: Delta) -> bytes:
        if self.finished:
            return b""
        self._usage.feed(delta)
        match delta:
            case Content():
                self._content(delta)
            case Reasoning(text=text):
                if text:
                    self._reasoning().text(text)
            case ToolCallStart():
                self._close_what_may_end()
                self._call(delta)
            case ToolCallArgs():
                call = self._calls[delta.index]
                if call.status == "in_progress":  # else only white space can follow
                    call.arguments(delta.fragment)
            case Refusal(text=text):
                self._refusal = text  # its place is after the text, whose end `Finish` tells
            case Finish():
                self._finish(delta)
            case Error():
                self._fail(delta)
            case Start():
                pass
        return self._ladder.take()

    def end(self) -> bytes:
        """The terminal event, once."""
        if self._ended:
            return b""
        self._ended = True
        if not self.finished:
            self._fail(_NO_RESULT)
        self._ladder.tell(_TERMINAL[self._status], {"response": self.response()})
        return self._ladder.take()

    def ping(self, silent_seconds: float) -> bytes:
        """Clients that count events live on this one; it has its place in the sequence."""
        if self._ended:
            return b""
        self._ladder.tell("response.in_progress", {"response": self.response(status="in_progress")})
        return self._ladder.take()

    @property
    def finished(self) -> bool:
        """The last delta was seen: the response will not change any more."""
        return self._status != "in_progress"

    def response(self, *, status: str | None = None) -> dict[str, Any]:
        """The response object as it stands."""
        shown = status or self._status
        open_now = shown == "in_progress"
        error, incomplete = (None, None) if open_now else (self._error, self._incomplete)
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None if open_now else self._completed_at,
            "status": shown,
            "background": False,
            "error": None if error is None else {"code": _error_code(error), "message": error.message},
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "model": self._options.model,
            "output": [] if open_now else [item.body() for item in self._items],
            "service_tier": TIER,
            "store": self._options.store if open_now else self.stored,
            "usage": None if open_now or error is not None else usage_body(self._usage.total),
            **(self._options.echo or ABSENT_ECHO),
        }

    def _content(self, delta: Content) -> None:
        logprobs = delta.logprobs if self._options.logprobs else ()
        if delta.text or logprobs:
            self._message().text(delta.text, logprobs)

    def _message(self) -> MessageItem:
        last = self._items[-1] if self._items else None
        if isinstance(last, MessageItem):
            return last
        self._close_what_may_end()
        item = MessageItem(self._ladder, len(self._items))
        self._items.append(item)
        return item

    def _reasoning(self) -> ReasoningItem:
        last = self._items[-1] if self._items else None
        if isinstance(last, ReasoningItem):
            return last
        self._close_what_may_end()
        item = ReasoningItem(self._ladder, len(self._items), summary=self._options.summary, sealed=self._options.sealed)
        self._items.append(item)
        return item

    def _call(self, start: ToolCallStart) -> None:
        name = self._options.names.get(start.name) or ToolName("function", start.name)
        kind = CustomCallItem if name.kind == "custom" else FunctionCallItem
        item = kind(self._ladder, len(self._items), start.id, name)
        self._calls[start.index] = item
        self._items.append(item)

    def _close_what_may_end(self) -> None:
        """Something else begins: close text and reasoning, and the calls whose arguments are whole."""
        for item in self._items:
            is_call = isinstance(item, FunctionCallItem | CustomCallItem)
            if item.status == "in_progress" and (not is_call or item.whole):
                item.close("completed")

    def _finish(self, finish: Finish) -> None:
        logprobs = finish.logprobs if self._options.logprobs else ()
        last = self._items[-1] if self._items else None
        if logprobs and isinstance(last, MessageItem) and last.status == "in_progress":
            last.text("", logprobs)
        self._incomplete = _INCOMPLETE.get(finish.reason)
        for item in self._items:
            if item.status == "in_progress":
                cut = self._incomplete is not None and not item.whole
                item.close("incomplete" if cut else "completed")
        if self._refusal is not None:
            # A message of its own: clients that do not know refusals skip the whole item, and must not lose the text.
            refusal = MessageItem(self._ladder, len(self._items))
            self._items.append(refusal)
            refusal.refuse(self._refusal)
            refusal.close("completed")
        self._status = "completed" if self._incomplete is None else "incomplete"
        self._completed_at = now() if self._incomplete is None else None

    def _fail(self, error: Error) -> None:
        """No item is told to be done: a client must not act on half a call."""
        cut: Status = "incomplete"
        for item in self._items:
            if item.status == "in_progress":
                item.status = cut
        self._status, self._error = "failed", error


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts in the words of this surface."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _error_code(error: Error) -> str:
    """The nearest of the codes that clients know."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if 400 <= error.status < 500 else "server_error"
