"""What a client makes of a Responses stream."""

from __future__ import annotations

import json
from typing import Any

from millstream.ir.deltas import Delta
from millstream.lint.responses_stream import ResponsesExpectation, lint_responses
from millstream.surfaces.responses import ResponsesEncoder, ResponsesOptions

LAST = {"response.completed", "response.incomplete", "response.failed"}


def encode(deltas: list[Delta], **options: Any) -> bytes:
    """All frames of a stream, held against the rules."""
    encoder = ResponsesEncoder(ResponsesOptions(model="tiny", **options), response_id="resp_1", created=7)
    raw = encoder.start() + b"".join(encoder.encode(delta) for delta in deltas) + encoder.end()
    return legal(raw, summary=bool(options.get("summary")))


def legal(raw: bytes, *, summary: bool | None = None) -> bytes:
    """The stream itself, if the lint has nothing to say against it."""
    assert raw.decode().splitlines() == raw.decode().split("\n")[:-1], "a client that cuts by splitlines is lost"
    assert lint_responses(raw, ResponsesExpectation(summary=summary)) == []
    return raw


def events(raw: bytes) -> list[dict[str, Any]]:
    """The data of every event."""
    frames = [frame for frame in raw.decode().split("\n\n") if frame]
    return [json.loads(line[6:]) for frame in frames for line in frame.split("\n") if line.startswith("data: ")]


def kinds(raw: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events(raw)]


def final(raw: bytes) -> dict[str, Any]:
    """The response of the terminal event."""
    last = events(raw)[-1]
    assert last["type"] in LAST
    response: dict[str, Any] = last["response"]
    return response


def silent(deltas: list[Delta], **options: Any) -> dict[str, Any]:
    """The response object of the answer that is not streamed."""
    encoder = ResponsesEncoder(ResponsesOptions(model="tiny", **options), response_id="resp_1", created=7, write=False)
    for delta in deltas:
        encoder.encode(delta)
    assert encoder.end() == b""
    return encoder.response()


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """A response whose minted parts are left out."""
    output = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    return {**json.loads(json.dumps(response, default=_raw)), "completed_at": None, "output": output}


def _raw(value: Any) -> Any:
    return json.loads(bytes(value))
