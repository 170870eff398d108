"""The judge for people: any server's capture against the rules of a surface, each fault with its place and the rule.

for fault in lint_capture(Path("capture.sse").read_bytes(), "chat"):
    print(fault.line, fault.message, fault.expected)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millstream.lint.capture import read_capture
from millstream.lint.messages_stream import lint_messages
from millstream.lint.openai_stream import Expectation, lint_chat, lint_completion
from millstream.lint.responses_stream import lint_responses
from millstream.lint.sse import Finding, Frame, parse

_COMMON = {
    "status": "a stream is answered with status 200",
    "content-type": "the content type is text/event-stream",
    "transfer": "the body is whole: its chunks end with one of size 0, or it has as many bytes as were announced",
    "framing": "lines of `data:`, `event:`, `id:`, `retry:` or a comment; an empty line ends each frame, the last too",
    "json": "each frame's data is one JSON object",
}
_OPENAI = {
    "done-last": "`data: [DONE]` comes exactly once and nothing follows it, also after an error",
    "envelope": "every chunk has the same id, object, created (whole seconds) and model, and a list of choices",
    "choice": "every choice has an index below the number of choices asked for",
    "role": "the first chunk of a choice carries the assistant's role, no later one does",
    "delta": "a choice carries the payload of its format: `delta` in chat, `text` in completions",
    "finish": "finish_reason is null until the choice's last chunk, which has a legal one; then the choice is closed",
    "absent": "what has nothing to say is absent, not null",
    "usage": "usage comes only if asked for, once, after the last finish, in a chunk without choices, and adds up",
    "error-ends": "an error ends the stream: no chunk and no finish follows it",
    "error": "an error is an object with message, type, param and code",
    "tool-call": "calls are numbered in order; the first chunk of a call has id, type and name, the others fragments",
    "logprobs": "log probabilities have the shape of their format and numbers as values",
    "refusal": "one refusal at most, and none beside tool calls",
}
_RESPONSES = {
    "type": "every event has a type, and its event line says the same",
    "shape": "every event has the members of its type",
    "sequence": "sequence_number counts 0, 1, 2… over all events",
    "order": "response.created comes first and once",
    "envelope": "the response has all its members, and id, created_at and model stay the same",
    "terminal": "one of response.completed, .incomplete and .failed comes last and tells the truth; nothing follows it",
    "item": "an item is added once and empty, keeps its id and type, and is done once",
    "index": "items and parts are numbered 0, 1, 2… in the order in which they are added",
    "part": "parts and deltas belong to an open item of their kind, and end before it does",
    "text": "the text of a done event is the join of its deltas",
    "call": "arguments belong to an open call, and their done event ends them",
    "output": "the output of the last event is what was streamed",
    "error": "an error event has a message",
    "usage": "usage is told unless the response failed, with its details, and adds up",
    "summary": "summaries come only if asked for",
    "logprobs": "events of output_text have a list of log probabilities",
}
_MESSAGES = {
    "event": "the event has a known name and data",
    "event-name": "the event's name is the type in its data",
    "start-first": "message_start comes first and once",
    "message": "the message of message_start has its id, type, role and model, and is empty",
    "one-block": "one content block is open at a time; the one before is closed first",
    "block-order": "blocks are numbered 0, 1, 2…",
    "index": "an event of a block names the block that is open",
    "block-shape": "a block opens with all members of its type, empty",
    "delta-type": "a delta's type fits the block that is open",
    "delta": "a delta carries text",
    "signature": "a thinking block ends with one signature",
    "arguments": "the fragments of a call's input join to a JSON object",
    "reason": "message_delta has a legal stop_reason, and the stop_sequence that goes with it",
    "stop-last": "message_stop comes once, last",
    "error-ends": "an error ends the stream without message_stop",
    "error": "an error has a known type and a message",
    "usage": "token counts are whole numbers, and those of the input do not change",
}


class Surface(msgspec.Struct, frozen=True):
    """One format's judge. ``rules``: what it expects. ``counted``: which frames it counts in its findings."""

    lint: Callable[[bytes, int], list[Finding]]
    rules: dict[str, str]
    counted: Callable[[Frame], bool] = lambda frame: frame.data is not None


def _chat(body: bytes, choices: int) -> list[Finding]:
    return lint_chat(body, Expectation(choices=choices))


def _completions(body: bytes, choices: int) -> list[Finding]:
    return lint_completion(body, Expectation(choices=choices))


SURFACES = {
    "chat": Surface(_chat, _COMMON | _OPENAI),
    "completions": Surface(_completions, _COMMON | _OPENAI),
    "responses": Surface(lambda body, _: lint_responses(body), _COMMON | _RESPONSES),
    "messages": Surface(
        lambda body, _: lint_messages(body),
        _COMMON | _MESSAGES,
        lambda frame: frame.data is not None or frame.event is not None,
    ),
}
"""By the names of the command line."""


class Fault(msgspec.Struct, frozen=True):
    """A broken rule: which, where (``frame`` from 1, ``line`` of the capture; None: the stream as a whole), what was
    found, and what was expected."""

    rule: str
    message: str
    expected: str
    frame: int | None = None
    line: int | None = None


def lint_capture(raw: bytes, surface: str, *, choices: int | None = None) -> list[Fault]:
    """Faults in the capture of one streamed answer, with or without HTTP head, chunks or request; empty if it is legal.

    ``choices``: how many were asked for; None: as many as the capture has.

    Raises:
        KeyError: there is no such surface (`SURFACES`).
    """
    judge = SURFACES[surface]
    capture = read_capture(raw)
    frames, _ = parse(capture.body)
    if not capture.body.strip():
        return [
            _fault(judge, Finding("framing", -1, "there is no stream"), [], [1]),
            *_headers(judge, capture.findings),
        ]
    findings = judge.lint(capture.body, choices or _choices(frames))
    counted = [frame for frame in frames if judge.counted(frame)]
    return _headers(judge, capture.findings) + [_fault(judge, one, counted, capture.lines) for one in findings]


def _headers(judge: Surface, findings: tuple[Finding, ...]) -> list[Fault]:
    return [Fault(one.rule, one.message, judge.rules[one.rule], line=one.line) for one in findings]


def _fault(judge: Surface, finding: Finding, counted: list[Frame], lines: list[int]) -> Fault:
    expected = judge.rules.get(finding.rule, "")
    line = finding.line
    if line is None and 0 <= finding.frame < len(counted):
        line = counted[finding.frame].line
    return Fault(
        finding.rule,
        finding.message,
        expected,
        None if finding.frame < 0 else finding.frame + 1,
        None if line is None else lines[min(line, len(lines)) - 1],
    )


def _choices(frames: list[Frame]) -> int:
    """The largest number of choices that a chunk names, in bounds."""
    highest = 0
    for frame in frames:
        try:
            chunk: Any = msgspec.json.decode(frame.data or "")
        except (msgspec.DecodeError, RecursionError):
            continue
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            index = choice.get("index") if isinstance(choice, dict) else None
            if type(index) is int and 0 <= index < 1024:
                highest = max(highest, index)
    return highest + 1
