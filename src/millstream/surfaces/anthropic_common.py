"""What the Anthropic surface writes alike, streamed or not: frames, the error envelope, usage, signatures."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from datetime import UTC, datetime
from typing import Any

from millstream.ir.deltas import Error, Finish, Usage
from millstream.ir.errors import ApiError, ContextLengthExceeded
from millstream.ir.provider import ModelCard
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.wire import request_id

ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Any other 4xx is an invalid_request_error, any other 5xx an api_error."""

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}

_NO_THREADS = {"error_code": "thread_unsupported_request"}
"""On this the SDKs' tool runners, which ask for a stored conversation first, go on with the full one each turn."""

_CARRIED = b"millstream-thinking-1\0"
_MAX_CARRIED = 4 * 1024 * 1024


def event(name: str, body: dict[str, Any]) -> bytes:
    """One frame; its JSON repeats the name as ``type``."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), to_json({"type": name, **body}))


def error_type(status: int) -> str:
    """Anthropic's word for an HTTP status."""
    return ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def encode_error(error: ApiError) -> bytes:
    """The body of a failure before the first byte."""
    body = _envelope(_message(error), error.status)
    if error.param == "thread" and error.code == "unsupported_parameter":
        body["error"]["details"] = _NO_THREADS
    return to_json(body)


def error_event(error: Error) -> bytes:
    """A failure after the first byte."""
    return b"event: error\ndata: %s\n\n" % to_json(_envelope(error.message, error.status))


def _envelope(message: str, status: int) -> dict[str, Any]:
    error = {"type": error_type(status), "message": message}
    return {"type": "error", "error": error, "request_id": request_id.get()}


def _message(error: ApiError) -> str:
    if isinstance(error, ContextLengthExceeded):
        # Word for word as Anthropic says it: clients recognise the case by it and read both numbers out of it, which
        # nothing may part.
        words = f"prompt is too long: {error.prompt_tokens} tokens > {error.context_length - 1} maximum"
        return f"{words} (at least: it was not counted to its end)" if error.at_least else words
    return error.message


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts. As in Anthropic's API, ``input_tokens`` leaves out what came from the cache.

    ``cache_creation_input_tokens`` is 0: every prompt enters the prefix cache, and nothing is charged for it.
    """
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def stop_fields(finish: Finish, *, refused: bool, has_calls: bool) -> dict[str, Any]:
    """``stop_reason`` and ``stop_sequence``, which always come together, and ``stop_details`` of a refusal."""
    reason = _STOP_REASONS[finish.reason]
    if finish.reason == "tool_calls" and not has_calls:
        reason = "end_turn"
    if reason == "end_turn":
        reason = "stop_sequence" if finish.stop_sequence is not None else "refusal" if refused else reason
    fields: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if reason == "stop_sequence":
        fields["stop_sequence"] = finish.stop_sequence
    if reason == "refusal":
        fields["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    return fields


def signature(thinking: str, *, carried: bool) -> str:
    """The signature of a thinking block; ``carried`` puts the text itself in it, for blocks that do not show theirs.

    It proves nothing: nobody is harmed by a client that makes up thoughts.
    """
    text = thinking.encode()
    raw = _CARRIED + zlib.compress(text) if carried else hashlib.sha256(_CARRIED + text).digest()
    return base64.b64encode(raw).decode()


def carried_thinking(value: str) -> str | None:
    """The text that a signature carries; None if it carries none, or none of ours."""
    try:
        raw = base64.b64decode(value, validate=True)
        if not raw.startswith(_CARRIED):
            return None
        return zlib.decompressobj().decompress(raw.removeprefix(_CARRIED), _MAX_CARRIED).decode(errors="ignore")
    except (binascii.Error, ValueError, zlib.error):
        return None


def model_body(card: ModelCard) -> dict[str, Any]:
    """A model as Anthropic's ``/v1/models`` tells it."""
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": card.context_length,
        "max_tokens": card.context_length,
    }


def model_list(cards: list[ModelCard]) -> dict[str, Any]:
    """The list has one page."""
    data = [model_body(card) for card in cards]
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[1]}
