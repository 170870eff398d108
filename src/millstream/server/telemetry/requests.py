"""One log line for each request that generated, when it has ended."""

from __future__ import annotations

import logging
from typing import Any

from millstream.ir.fold import fold
from millstream.server.admin.entry import Entry
from millstream.server.telemetry.logs import FIELDS

log = logging.getLogger("millstream.requests")


def log_ended(entry: Entry) -> None:
    """Log what a request was, what it cost, how it ended, and, if its prompt was kept for that, what was said."""
    if not log.isEnabledFor(logging.INFO):
        return
    facts, view, seconds = entry.facts, entry.view(), (entry.ended or entry.since) - entry.since
    fields: dict[str, Any] = {
        "request": facts.id,
        "surface": facts.surface,
        "model": facts.model,
        "key": facts.key,
        "outcome": entry.end,
        "note": entry.timeline[-1].note,
        "streamed": facts.streamed,
        "choices": facts.choices,
        "prompt_tokens": view.prompt_tokens,
        "cached_tokens": view.cached_tokens,
        "completion_tokens": view.completion_tokens,
        "queue_seconds": None if entry.started is None else round(entry.started - entry.since, 6),
        "first_token_seconds": None if view.first_token_seconds is None else round(view.first_token_seconds, 6),
        "seconds": round(seconds, 6),
    }
    if facts.prompt is not None:
        fields["prompt"] = facts.prompt
        fields["answer"] = [choice.text for choice in fold(entry.said()).choices]
    log.info(
        "%s %s %s (%s): %d + %d tokens, %.3f s",
        facts.surface,
        ascii(facts.model[:200])[1:-1],
        entry.end,
        entry.timeline[-1].note,
        view.prompt_tokens,
        view.completion_tokens,
        seconds,
        extra={FIELDS: {name: value for name, value in fields.items() if value is not None}},
    )
