"""How each surface is asked for a stream, and how its answer is read: the text, the end, the number of text events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from millstream.bench.errors import BenchError


class Told(NamedTuple):
    """What a stream said: its text, how many events carried some, how often it ended, whether the end came last."""

    text: str
    events: int
    ends: int
    ends_last: bool


class ApiSurface(NamedTuple):
    """``limit``: the name of the field for the most new tokens. ``piece``: the text of an event (None: not a text
    event). ``is_end``: whether an event ends the answer."""

    path: str
    limit: str
    fields: Callable[[str], dict[str, Any]]
    piece: Callable[[dict[str, Any]], str | None]
    is_end: Callable[[dict[str, Any]], bool]
    done: bool = False

    def body(self, model: str, prompt: str, tokens: int, **more: Any) -> bytes:
        """The JSON of a streamed request."""
        return msgspec.json.encode({"model": model, "stream": True, self.limit: tokens, **self.fields(prompt), **more})

    def read(self, body: bytes) -> Told:
        """Read an answer's events. Raises `BenchError` if they are no JSON, or a `[DONE]` is missing or misplaced."""
        frames = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        if self.done and (frames.count(b"[DONE]") != 1 or frames.pop() != b"[DONE]"):
            raise BenchError("a stream has not exactly one [DONE] at its end")
        try:
            events: list[dict[str, Any]] = [msgspec.json.decode(frame) for frame in frames]
        except msgspec.DecodeError as error:
            raise BenchError(f"an event is not JSON: {error}") from None
        pieces = [piece for event in events if (piece := self.piece(event))]
        ends = [self.is_end(event) for event in events]
        return Told("".join(pieces), len(pieces), sum(ends), bool(ends) and ends[-1])


def _messages(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]}


def _choice(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    return choices[0] if choices else {}


def _chat_piece(event: dict[str, Any]) -> str | None:
    text = _choice(event).get("delta", {}).get("content")
    return text if isinstance(text, str) else None


def _completion_piece(event: dict[str, Any]) -> str | None:
    text = _choice(event).get("text")
    return text if isinstance(text, str) else None


def _response_piece(event: dict[str, Any]) -> str | None:
    return event["delta"] if event.get("type") == "response.output_text.delta" else None


def _message_piece(event: dict[str, Any]) -> str | None:
    return event["delta"].get("text") if event.get("type") == "content_block_delta" else None


def _finish(event: dict[str, Any]) -> bool:
    return _choice(event).get("finish_reason") is not None or "error" in event


def _response_end(event: dict[str, Any]) -> bool:
    return event.get("type") in ("response.completed", "response.incomplete", "response.failed", "error")


def _message_end(event: dict[str, Any]) -> bool:
    return event.get("type") in ("message_stop", "error")


API_SURFACES: dict[str, ApiSurface] = {
    "chat": ApiSurface("/v1/chat/completions", "max_tokens", _messages, _chat_piece, _finish, done=True),
    "completions": ApiSurface(
        "/v1/completions", "max_tokens", lambda prompt: {"prompt": prompt}, _completion_piece, _finish, done=True
    ),
    "responses": ApiSurface(
        "/v1/responses", "max_output_tokens", lambda prompt: {"input": prompt}, _response_piece, _response_end
    ),
    "messages": ApiSurface("/v1/messages", "max_tokens", _messages, _message_piece, _message_end),
}
