"""How one response is written: who it is, what of its request it repeats, how its calls are named."""

from __future__ import annotations

import secrets
import time
from typing import Any

import msgspec

from millstream.surfaces.responses.items import Item
from millstream.surfaces.responses.tools import ToolName
from millstream.surfaces.wire import WireOptions


def new_response_id() -> str:
    """A fresh id of a response."""
    return "resp_" + secrets.token_hex(24)


def now() -> int:
    """Unix seconds."""
    return int(time.time())


ABSENT_ECHO: dict[str, Any] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "text": {"format": {"type": "text"}},
    "top_logprobs": 0,
    "truncation": "disabled",
    "prompt_cache_key": None,
    "safety_identifier": None,
    "user": None,
}
"""What a response repeats of a request that says nothing."""


class ResponsesOptions(WireOptions, frozen=True, kw_only=True):
    """``echo``: fields of the request that the response object repeats. ``names``: the client's names of tools by the
    model's. ``summary``: reasoning is sent as its own summary too. ``sealed``: reasoning carries
    ``encrypted_content``. ``store``: the client wants it kept. ``previous``: the response that it continues.
    ``input_items``: the regular items of the request's own input. ``truncate``: drop the oldest turns if needed."""

    echo: dict[str, Any] = msgspec.field(default_factory=dict)
    names: dict[str, ToolName] = msgspec.field(default_factory=dict)
    summary: bool = False
    sealed: bool = False
    store: bool = False
    previous: str | None = None
    input_items: tuple[Item, ...] = ()
    truncate: bool = False


def echo_of(changes: dict[str, Any]) -> dict[str, Any]:
    """The echo of a request; values that are large are serialised once here, not in each event."""
    echo = {**ABSENT_ECHO, **{name: value for name, value in changes.items() if value is not None}}
    for name in ("tools", "instructions", "text", "metadata", "tool_choice"):
        echo[name] = msgspec.Raw(msgspec.json.encode(echo[name]))
    return echo
