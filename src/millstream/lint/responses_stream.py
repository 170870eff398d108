"""Rules of the Responses stream, as a state machine over the events of one response.

The rules: an ``event`` line that equals the ``type`` in the data; ``sequence_number`` 0, 1, 2… over all events;
`response.created` first, one terminal event last, nothing after it; items are added in the order of ``output_index``,
keep one id, and are done once; parts and deltas belong to an open item of their kind; the ``done`` of a text is the
join of its deltas; the output of the terminal event is what was streamed; a cut answer is told as ``incomplete``; usage
unless it failed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.lint.sse import Finding, parse

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
LIFECYCLE = ("response.created", "response.in_progress", "response.queued", *TERMINAL)
RESPONSE_KEYS = (
    "id",
    "object",
    "created_at",
    "status",
    "error",
    "incomplete_details",
    "instructions",
    "metadata",
    "model",
    "output",
    "parallel_tool_calls",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
    "usage",
)

_PARTS = {
    "output_text": ("message", "text"),
    "refusal": ("message", "refusal"),
    "reasoning_text": ("reasoning", "text"),
}
_TEXT_EVENTS = {
    "response.output_text": ("content", "output_text", "text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text": ("summary", "summary_text", "text"),
}
_CALL_EVENTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}


class ResponsesExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """What the request asked for. ``summary`` False: no summary events are legal; None: not known."""

    summary: bool | None = None


def lint_responses(raw: bytes, expect: ResponsesExpectation | None = None) -> list[Finding]:
    """Findings in the body of a streamed response; empty if it is legal."""
    frames, findings = parse(raw)
    lint = ResponsesLint(expect or ResponsesExpectation())
    for frame in frames:
        if frame.data is not None:
            lint.feed(frame.event, frame.data)
    return findings + lint.finish()


class _Part:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.text_done = self.done = False


class _Item:
    def __init__(self, item: dict[str, Any]) -> None:
        self.id = item.get("id")
        self.kind = item.get("type")
        self.parts: dict[tuple[str, int], _Part] = {}
        self.pieces: list[str] = []
        self.text_done = False
        self.done: dict[str, Any] | None = None


class ResponsesLint:
    """`feed` takes the event line and the data of each frame, `finish` gives the findings."""

    def __init__(self, expect: ResponsesExpectation) -> None:
        self._expect = expect
        self._findings: list[Finding] = []
        self._frame = -1
        self._envelope: dict[str, Any] | None = None
        self._items: list[_Item] = []
        self._terminal: str | None = None

    def feed(self, event: str | None, data: str) -> None:
        self._frame += 1
        if not self._check(self._terminal is None, "terminal", "an event after the terminal one"):
            return
        try:
            body = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            self._report("json", f"{data[:40]!r}: {error}")
            return
        if not self._check(isinstance(body, dict), "json", "an event must be an object"):
            return
        kind = body.get("type")
        if not self._check(isinstance(kind, str), "type", "the data has no type"):
            return
        self._check(event == kind, "type", f"the event line says {event!r}, the data {kind!r}")
        number = body.get("sequence_number")
        self._check(
            type(number) is int and number == self._frame,
            "sequence",
            f"sequence_number {number!r}, expected {self._frame}",
        )
        if self._frame == 0:
            self._check(kind == "response.created", "order", f"the first event is {kind}")
        try:
            self._event(kind, body)
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            # A capture may hold anything: a list where an object belongs, a number where a list does.
            self._report("shape", f"{kind} has an impossible shape: {error}")

    def finish(self) -> list[Finding]:
        self._frame = -1
        self._check(self._terminal is not None, "terminal", "no terminal event")
        return self._findings

    def _event(self, kind: str, body: dict[str, Any]) -> None:
        stem, _, ending = kind.rpartition(".")
        if kind in LIFECYCLE:
            self._lifecycle(kind, body)
        elif kind == "error":
            self._check(isinstance(body.get("message"), str), "error", "an error without a message")
            self._terminal = kind
        elif kind == "response.output_item.added":
            self._added(body)
        elif kind == "response.output_item.done":
            self._done(body)
        elif stem in ("response.content_part", "response.reasoning_summary_part") and ending in ("added", "done"):
            self._part(stem, ending, body)
        elif stem in _TEXT_EVENTS and ending in ("delta", "done"):
            self._text(stem, ending, body)
        elif stem in _CALL_EVENTS and ending in ("delta", "done"):
            self._call(stem, ending, body)
        else:
            self._report("type", f"unknown event {kind}")

    def _lifecycle(self, kind: str, body: dict[str, Any]) -> None:
        response = body.get("response")
        if not self._check(isinstance(response, dict), "envelope", f"{kind} has no response object"):
            return
        assert isinstance(response, dict)
        missing = [key for key in RESPONSE_KEYS if key not in response]
        self._check(not missing, "envelope", f"{kind} lacks {', '.join(missing)}")
        envelope = {key: response.get(key) for key in ("id", "object", "created_at", "model")}
        if self._envelope is None:
            self._envelope = envelope
            self._check(envelope["object"] == "response" and bool(envelope["id"]), "envelope", f"wrong: {envelope}")
        self._check(envelope == self._envelope, "envelope", "id, created_at or model changed")
        status = {"response.created": "in_progress"}.get(kind, kind.rpartition(".")[2])
        self._check(response.get("status") == status, "envelope", f"{kind} has the status {response.get('status')!r}")
        if kind == "response.created":
            self._check(self._frame == 0, "order", "the response was created again")
        if kind in TERMINAL:
            self._terminal = kind
            self._end(kind, response)

    def _end(self, kind: str, response: dict[str, Any]) -> None:
        output = response.get("output")
        if not self._check(isinstance(output, list), "output", "output must be a list"):
            return
        assert isinstance(output, list)
        failed = kind == "response.failed"
        self._check((response.get("error") is not None) == failed, "terminal", "error belongs to response.failed")
        details = response.get("incomplete_details")
        cut = kind == "response.incomplete"
        self._check((details is not None) == cut, "terminal", "incomplete_details belongs to response.incomplete")
        if cut:
            reason = details.get("reason") if isinstance(details, dict) else None
            self._check(reason in ("max_output_tokens", "content_filter"), "terminal", f"reason {reason!r}")
        if not failed:
            self._usage(response.get("usage"))
        ids = [item.get("id") for item in output if isinstance(item, dict)]
        self._check(ids == [item.id for item in self._items], "output", "the output differs from the added items")
        for state, item in zip(self._items, output, strict=False):
            if failed:
                self._check(item.get("status") != "in_progress", "item", f"item {state.id} is still in progress")
            elif self._check(state.done is not None, "item", f"item {state.id} was never done"):
                self._check(item == state.done, "output", f"item {state.id} differs from what was streamed")
        statuses = [item.get("status") for item in output if isinstance(item, dict)]
        if kind == "response.completed":
            self._check("incomplete" not in statuses, "terminal", "completed, with an item that is not")

    def _usage(self, usage: Any) -> None:
        if not self._check(isinstance(usage, dict), "usage", "no usage"):
            return
        counts = [usage.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")]
        if self._check(all(type(count) is int for count in counts), "usage", f"not token counts: {usage}"):
            self._check(counts[0] + counts[1] == counts[2], "usage", "total_tokens is not the sum")
        details = (
            isinstance(usage.get("input_tokens_details"), dict) and "cached_tokens" in usage["input_tokens_details"]
        )
        self._check(details, "usage", "no cached_tokens")
        details = isinstance(usage.get("output_tokens_details"), dict)
        self._check(details and "reasoning_tokens" in usage["output_tokens_details"], "usage", "no reasoning_tokens")

    def _added(self, body: dict[str, Any]) -> None:
        item, index = body.get("item"), body.get("output_index")
        self._check(index == len(self._items), "index", f"output_index {index!r}, expected {len(self._items)}")
        if not self._check(isinstance(item, dict), "item", "no item"):
            return
        assert isinstance(item, dict)
        self._check(bool(item.get("id")), "item", "an item without an id")
        self._check(item.get("id") not in [known.id for known in self._items], "item", "two items have the same id")
        empty = not (item.get("content") or item.get("summary") or item.get("arguments") or item.get("input"))
        self._check(empty, "item", "an item is added with content")
        self._items.append(_Item(item))

    def _done(self, body: dict[str, Any]) -> None:
        item = body.get("item")
        state = self._open(body, item.get("id") if isinstance(item, dict) else None)
        if state is None or not isinstance(item, dict):
            return
        state.done = item
        self._check(item.get("type") == state.kind, "item", f"the type of item {state.id} changed")
        for (place, at), part in state.parts.items():
            if self._check(part.done, "part", f"{place} part {at} of {state.id} was not done"):
                shown = item.get(place) or []
                body_text = shown[at].get(_key(part.kind)) if at < len(shown) else ""
                self._check(body_text == "".join(part.pieces), "text", f"item {state.id} differs from its deltas")
        for kind, key in _CALL_EVENTS.values():
            if state.kind == kind:
                self._check(state.text_done, "call", f"the {key} of {state.id} were not done")
                self._check(item.get(key) == "".join(state.pieces), "text", f"{key} differ from their deltas")

    def _part(self, stem: str, ending: str, body: dict[str, Any]) -> None:
        state = self._open(body, body.get("item_id"))
        if state is None:
            return
        summary = stem == "response.reasoning_summary_part"
        place, index_name = ("summary", "summary_index") if summary else ("content", "content_index")
        at, content = body.get(index_name), body.get("part")
        if not self._check(type(at) is int and isinstance(content, dict), "part", f"no {index_name} or part"):
            return
        assert isinstance(at, int)
        assert isinstance(content, dict)
        kind = str(content.get("type"))
        owner = "reasoning" if summary else _PARTS.get(kind, ("", ""))[0]
        self._check(state.kind == owner, "part", f"a {kind} part in a {state.kind} item")
        if summary:
            self._check(self._expect.summary is not False, "summary", "a summary that nobody asked for")
        if ending == "added":
            expected = sum(1 for known in state.parts if known[0] == place)
            self._check(at == expected, "index", f"{index_name} {at}, expected {expected}")
            self._check(not content.get(_key(kind)), "part", "a part is added with content")
            state.parts[place, at] = _Part(kind)
            return
        part = state.parts.get((place, at))
        if part is None or part.done:
            self._report("part", f"{place} part {at} is not open")
            return
        part.done = True
        self._check(part.text_done, "part", f"{place} part {at} was done before its text")
        self._check(content.get(_key(kind)) == "".join(part.pieces), "text", "a part differs from its deltas")

    def _text(self, stem: str, ending: str, body: dict[str, Any]) -> None:
        place, kind, key = _TEXT_EVENTS[stem]
        state = self._open(body, body.get("item_id"))
        if state is None:
            return
        index_name = "summary_index" if place == "summary" else "content_index"
        part = state.parts.get((place, body.get(index_name, -1)))
        if part is None or part.kind != kind or part.text_done:
            self._report("part", f"{stem}.{ending} for no open part of its kind")
            return
        if kind == "output_text":
            self._check(isinstance(body.get("logprobs"), list), "logprobs", f"{stem}.{ending} has no logprobs list")
        if ending == "delta":
            if self._check(isinstance(body.get("delta"), str), "text", "a delta must be text"):
                part.pieces.append(body["delta"])
            return
        part.text_done = True
        self._check(body.get(key) == "".join(part.pieces), "text", f"{stem}.done differs from its deltas")

    def _call(self, stem: str, ending: str, body: dict[str, Any]) -> None:
        kind, key = _CALL_EVENTS[stem]
        state = self._open(body, body.get("item_id"))
        if state is None:
            return
        self._check(state.kind == kind, "call", f"{stem} for a {state.kind} item")
        self._check(not state.text_done, "call", f"{stem}.{ending} after the {key} were done")
        if ending == "delta":
            if self._check(isinstance(body.get("delta"), str), "text", "a delta must be text"):
                state.pieces.append(body["delta"])
            return
        state.text_done = True
        self._check(body.get(key) == "".join(state.pieces), "text", f"{stem}.done differs from its deltas")

    def _open(self, body: dict[str, Any], item_id: Any) -> _Item | None:
        """The open item that an event names by index and id."""
        index = body.get("output_index")
        if type(index) is not int or not 0 <= index < len(self._items):
            self._report("index", f"output_index {index!r} of {len(self._items)} items")
            return None
        state = self._items[index]
        self._check(item_id == state.id, "item", f"the id of item {index} is {item_id!r}, was {state.id!r}")
        if not self._check(state.done is None, "item", f"an event of item {index} after it was done"):
            return None
        return state

    def _report(self, rule: str, message: str) -> None:
        self._findings.append(Finding(rule, self._frame, message))

    def _check(self, holds: bool, rule: str, message: str) -> bool:
        if not holds:
            self._report(rule, message)
        return holds


def _key(kind: str) -> str:
    return "refusal" if kind == "refusal" else "text"
