"""The bodies of ``/v1/events`` and ``/v1/admin``, as the server writes them and `top` and the web page read them.

Times are seconds since 1970, durations seconds, sizes bytes. New members may be added; a reader ignores what it does
not know. No body carries the text of a prompt or an answer, except a request's wire view.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RequestState = Literal["queued", "prefill", "decode", "paused", "ended"]
"""Where a request is; of several sequences, the one that is furthest counts. How it ended, its timeline says."""

ModelState = Literal["loaded", "loading", "unloading", "failed", "on_disk", "pulling", "available"]
"""Answers requests; is being loaded; finishes its open requests and takes no others; could not be loaded, or its engine
is lost; is a file here; is being fetched; can be fetched."""

WIRE_SURFACES = ("chat", "responses", "messages")
"""The wire formats in which an open request can be watched, whatever it was asked in."""


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last minute; None where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class EngineView(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process and what it works on. ``waits``: sequences that do not advance, by `WaitReason`.
    ``prefix_hit_ratio``: part of the prompt tokens of the last minute that the prefix cache had."""

    model: str
    status: str
    reason: str | None = None
    isa: str = ""
    threads: int = 0
    running: int = 0
    waiting: int = 0
    waits: dict[str, int] = {}
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    prefix_hit_ratio: float | None = None
    preemptions: int = 0
    restarts: int = 0
    resumed: int = 0
    pid: int = 0
    resident_bytes: int = 0


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """One request, open or of the last that ended. ``key``: the name of the key that it came with; empty: none.
    ``state`` and ``wait_reason`` are those of its sequences. ``prompt_done``: of the prompt's tokens those that are
    computed, cached ones among them, in the sequence that is furthest. ``tokens_per_second``: of its own decode so
    far."""

    id: str
    key: str = ""
    surface: str = ""
    model: str = ""
    state: RequestState = "queued"
    wait_reason: str | None = None
    priority: int = 0
    streamed: bool = False
    choices: int = 1
    prompt_tokens: int = 0
    prompt_done: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    began: float = 0.0
    first_token_seconds: float | None = None
    tokens_per_second: float | None = None
    held: bool = False
    """An operator has paused it."""


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` since the request began; ``kind`` such as received, prefill, first_token, paused, resumed, preempted,
    engine_restarted, priority, finished; ``note`` for a reader."""

    seconds: float
    kind: str
    note: str = ""


class RequestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """``parameters``: what the request asked for, without its text."""

    request: RequestView
    timeline: list[TimelineEvent] = []
    parameters: dict[str, str] = {}


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is served, or could be. ``file_bytes``: of its file, here or not. ``fetched_bytes`` of
    ``fetch_bytes``: how far a pull is; what is fetched is packed. ``default``: the server is ready if this one is.
    ``kv_type``, ``activations``: of a loaded one, as `serve` was told."""

    name: str
    state: ModelState
    title: str = ""
    license: str = ""
    file_bytes: int = 0
    fetch_bytes: int = 0
    fetched_bytes: int = 0
    context_length: int = 0
    kv_tokens: int = 0
    kv_type: str = ""
    activations: str = ""
    open_requests: int = 0
    default: bool = False
    error: str | None = None


class KeyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a key has used since the server began, and what is left of its limits in this minute (None: no limit)."""

    name: str
    priority: int = 0
    requests: int = 0
    refused: int = 0
    open_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    requests_left: int | None = None
    tokens_left: int | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One event of ``GET /v1/events`` (``event: snapshot``), once a second unless ``?interval=`` says otherwise.

    ``status`` and ``reason`` are those of ``/ready``. Rates are of the last interval.
    """

    time: float
    version: str
    status: str
    reason: str | None = None
    uptime_seconds: float = 0.0
    open_requests: int = 0
    decode_tokens_per_second: float = 0.0
    prompt_tokens_per_second: float = 0.0
    first_token: Percentiles = Percentiles()
    inter_token: Percentiles = Percentiles()
    engines: list[EngineView] = []
    requests: list[RequestView] = []
    models: list[ModelView] = []
    keys: list[KeyUsage] = []


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event of ``GET /v1/admin/logs`` (``event: log``): the last lines, then those that follow."""

    time: float
    level: Literal["debug", "info", "warning", "error"]
    logger: str
    message: str
    request_id: str | None = None
