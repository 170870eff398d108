"""What the OpenAI surfaces write alike: frames, the error envelope, usage, log probabilities, constant parts."""

from __future__ import annotations

import codecs
import math
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from millstream.ir.deltas import Error, TokenLogprob, Usage
from millstream.ir.errors import ApiError

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say; OpenAI uses the same number."""


def to_json(value: Any) -> bytes:
    """Compact JSON. Unicode's own line ends are escaped: some clients cut lines by ``str.splitlines``."""
    raw = _encode(value)
    if raw.isascii():
        return raw
    return (
        raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")
    )


def data_frame(value: Any) -> bytes:
    """One SSE frame of a JSON value."""
    return b"data: " + to_json(value) + b"\n\n"


def error_body(message: str, type: str, param: str | None, code: str | None) -> dict[str, Any]:
    """OpenAI's envelope; all four keys are always there."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def encode_error(error: ApiError) -> bytes:
    """The body of a failure before the first byte."""
    return to_json(error_body(error.message, error.type, error.param, error.code))


def error_frame(error: Error) -> bytes:
    """A failure after the first byte."""
    return data_frame(error_body(error.message, error.type, error.param, error.code))


def list_body(items: Sequence[dict[str, Any]] | Sequence[msgspec.Raw], ids: Sequence[str], *, more: bool) -> bytes:
    """A page of a list in OpenAI's form; ``ids`` are those of the items."""
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return to_json({"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": more})


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts with their details; those of predictions only if there were any."""
    details = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.drafted_tokens:
        details["accepted_prediction_tokens"] = usage.accepted_tokens
        details["rejected_prediction_tokens"] = usage.drafted_tokens - usage.accepted_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": details,
    }


def finite(logprob: float) -> float:
    """A log probability that JSON can say."""
    return logprob if math.isfinite(logprob) else LOWEST_LOGPROB


def chat_logprobs(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    """The chat shape: one object per token with its bytes and alternatives."""
    content = [
        {
            "token": entry.text,
            "logprob": finite(entry.logprob),
            "bytes": list(entry.bytes),
            "top_logprobs": [
                {"token": top.text, "logprob": finite(top.logprob), "bytes": list(top.bytes)} for top in entry.top
            ],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


class LegacyLogprobs:
    """The completions shape, over one choice: parallel lists, offsets in characters of the choice's text."""

    def __init__(self) -> None:
        self._characters = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def body(self, entries: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The lists for the next tokens of the choice."""
        tokens: list[str] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for entry in entries:
            token = _legacy_token(entry.text, entry.bytes)
            tokens.append(token)
            if math.isnan(entry.logprob):  # the first token of an echoed prompt
                logprobs.append(None)
                tops.append(None)
            else:
                logprobs.append(finite(entry.logprob))
                alternatives = {_legacy_token(top.text, top.bytes): finite(top.logprob) for top in entry.top}
                tops.append({**alternatives, token: finite(entry.logprob)})
            offsets.append(self._offset(entry))
        return {"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}

    def _offset(self, entry: TokenLogprob) -> int:
        token = entry.bytes if entry.shown else b""
        if not entry.shown or (token and token[0] & 0xC0 != 0x80):
            # A character that is cut short by another, or by a control token, is U+FFFD in the text.
            self._characters += len(self._decoder.decode(b"", True))
            self._decoder.reset()
        # A token that goes on within a character stands where this begins.
        offset = self._characters
        self._characters += len(self._decoder.decode(token))
        return offset


def _legacy_token(text: str, raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
    return text


def new_id(prefix: str) -> str:
    """A fresh id of an answer."""
    return prefix + secrets.token_hex(16)


class Envelope:
    """The constant parts of one answer: ``id``, ``object``, ``created`` and ``model``, the same in every chunk, and
    what else each chunk tells."""

    def __init__(
        self, prefix: str, kind: str, model: str, response_id: str | None, created: int | None, **told: str
    ) -> None:
        self.head: dict[str, Any] = {
            "id": response_id or new_id(prefix),
            "object": kind,
            "created": int(time.time()) if created is None else created,
            "model": model,
            **told,
        }
        # `{…,"choices":[` as text, so that a chunk is a join and not a serialisation.
        self.open_choices = b"data: " + to_json(self.head)[:-1] + b',"choices":['
