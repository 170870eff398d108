"""A busy server to look at: the same in tests and in the pictures of the documentation."""

from __future__ import annotations

import math

from millstream.admin.views import (
    EngineView,
    KeyUsage,
    LogLine,
    ModelView,
    Percentiles,
    RequestDetail,
    RequestView,
    Snapshot,
    TimelineEvent,
)
from tui.played_server import Script, chunk, usage

NOW = 1_795_990_000.0
MODEL = "qwen2.5-coder-0.5b"
SMALL = "smollm2-135m-instruct"


def requests() -> list[RequestView]:
    """One of every state."""
    return [
        RequestView(
            id="req_8f14e45f", key="ci", surface="chat", model=MODEL, state="decode", streamed=True, prompt_tokens=1834,
            cached_tokens=1792, completion_tokens=412, began=NOW - 9.4, first_token_seconds=0.182,
            tokens_per_second=44.7,
        ),
        RequestView(
            id="req_c9f0f895", key="editor", surface="messages", model=MODEL, state="decode", streamed=True,
            prompt_tokens=10_412, cached_tokens=9_984, completion_tokens=57, began=NOW - 3.1, first_token_seconds=0.94,
            tokens_per_second=26.4, priority=-10,
        ),
        RequestView(
            id="req_45c48cce", key="editor", surface="responses", model=MODEL, state="prefill", streamed=True,
            prompt_tokens=6_120, began=NOW - 1.2, wait_reason="step_budget",
        ),
        RequestView(
            id="req_d3d94468", key="batch", surface="chat", model=SMALL, state="queued", prompt_tokens=2_044,
            began=NOW - 41.0, wait_reason="kv_cache", priority=50,
        ),
        RequestView(
            id="req_6512bd43", key="batch", surface="completions", model=SMALL, state="paused", prompt_tokens=96,
            completion_tokens=1_203, began=NOW - 187.0, first_token_seconds=0.051, tokens_per_second=81.2, held=True,
            priority=50,
        ),
    ]  # fmt: skip


def models() -> list[ModelView]:
    """One of every state."""
    return [
        ModelView(name=MODEL, state="loaded", title="Qwen2.5 Coder 0.5B Instruct, Q4_K_M", license="Apache-2.0",
                  file_bytes=397_808_192, context_length=32_768, kv_tokens=65_536, open_requests=3, default=True),
        ModelView(name=SMALL, state="loaded", title="SmolLM2 135M Instruct, Q4_1", license="Apache-2.0",
                  file_bytes=98_300_000, context_length=8_192, kv_tokens=32_768, open_requests=2),
        ModelView(name="gemma-3-270m-it", state="pulling", title="Gemma 3 270M Instruct, Q4_K_M", license="Gemma terms",
                  fetch_bytes=253_000_000, fetched_bytes=159_400_000, context_length=32_768),
        ModelView(name="my-finetune", state="failed", file_bytes=812_000_000,
                  error="blk.7.attn_q.weight: the tensor type IQ2_XS is not supported; quantise it as Q4_K."),
        ModelView(name="qwen2.5-1.5b-instruct", state="available", title="Qwen2.5 1.5B Instruct, Q4_K_M",
                  license="Apache-2.0", fetch_bytes=986_000_000, context_length=32_768),
    ]  # fmt: skip


def snapshot(at: int = 0) -> Snapshot:
    """The state ``at`` seconds after the begin; the curves are smooth and the same in every run."""
    swing = math.sin(at / 7) + 0.4 * math.sin(at / 2.3)
    return Snapshot(
        time=NOW + at, version="0.1.0", status="ok", uptime_seconds=11_565.0 + at, open_requests=5,
        decode_tokens_per_second=128.4 + 41 * swing, prompt_tokens_per_second=max(0.0, 1_240.0 * (swing + 0.3)),
        first_token=Percentiles(p50=0.214 + 0.05 * swing, p95=0.94, p99=1.82),
        inter_token=Percentiles(p50=0.0218 + 0.004 * swing, p95=0.041, p99=0.087),
        engines=[
            EngineView(model=MODEL, status="ok", isa="avx512", threads=8, running=3, waiting=1,
                       waits={"step_budget": 1}, kv_blocks_used=1_391, kv_blocks_total=2_048, prefix_hit_ratio=0.71,
                       preemptions=2, pid=48_213, resident_bytes=912_000_000),
            EngineView(model=SMALL, status="ok", isa="avx512", threads=8, running=0, waiting=2,
                       waits={"kv_cache": 1, "paused_reader": 1}, kv_blocks_used=1_012, kv_blocks_total=1_024,
                       prefix_hit_ratio=0.08, preemptions=19, restarts=1, resumed=4, pid=48_371,
                       resident_bytes=341_000_000),
        ],
        requests=requests(), models=models(),
        keys=[
            KeyUsage(name="ci", requests=1_204, open_requests=1, prompt_tokens=2_411_000, cached_tokens=2_039_000,
                     completion_tokens=301_000, requests_left=48, tokens_left=91_200),
            KeyUsage(name="editor", priority=-10, requests=312, open_requests=2, prompt_tokens=3_100_000,
                     cached_tokens=2_900_000, completion_tokens=88_000),
            KeyUsage(name="batch", priority=50, requests=9_402, refused=37, open_requests=2, prompt_tokens=18_700_000,
                     cached_tokens=204_000, completion_tokens=4_900_000, requests_left=0, tokens_left=0),
        ],
    )  # fmt: skip


def detail() -> RequestDetail:
    """The first request, opened."""
    events = [
        (0.0, "received", "chat, streamed"), (0.003, "queued", "2 before it"),
        (0.011, "prefill", "42 of 1834 tokens; 1792 cached"),
        (0.182, "first_token", ""), (4.207, "engine_restarted", "resumed with 171 tokens"), (4.951, "decode", ""),
        (7.3, "priority", "0 → -5 by an operator"),
    ]  # fmt: skip
    return RequestDetail(
        request=requests()[0],
        timeline=[TimelineEvent(seconds=seconds, kind=kind, note=note) for seconds, kind, note in events],
        parameters={"temperature": "0.2", "top_p": "0.95", "max_tokens": "1024", "seed": "7", "stop": "1 string"},
    )


def logs() -> list[LogLine]:
    """Of every level."""
    lines: list[tuple[str, str, str, str | None]] = [
        ("info", "millstream.server", "listening on 127.0.0.1:8000", None),
        ("info", "millstream.engine", f"{MODEL}: ready in 1.4 s (avx512, 8 threads)", None),
        ("debug", "millstream.scheduler", "step 10412: 3 decodes, 96 prompt tokens", None),
        ("info", "millstream.access", "POST /v1/chat/completions 200 in 8.12 s", "req_8f14e45f"),
        ("warning", "millstream.server", "queue is half full: 128 of 256", None),
        ("error", "millstream.engine", f"{SMALL}: the engine died (signal 9); restarting, 4 requests resume", None),
        ("info", "millstream.engine", f"{SMALL}: ready again in 0.3 s", None),
        ("warning", "millstream.server", "the client stalls: paused after 5 s without reading", "req_6512bd43"),
    ]  # fmt: skip
    return [
        LogLine(time=NOW - 60 + 7 * at, level=level, logger=logger, message=message, request_id=request)  # type: ignore[arg-type]
        for at, (level, logger, message, request) in enumerate(lines)
    ]


CODE = """Here is a version that keeps the order:

    def unique(items):
        seen = set()
        return [each for each in items if not (each in seen or seen.add(each))]

`seen.add` returns None, so the second half of the condition only runs for its effect."""


def answer(text: str = CODE, thinking: str = "The order has to stay, so a set alone will not do.") -> list[object]:
    """Chunks of an answer."""
    words = text.split(" ")
    return [
        chunk(role="assistant"),
        *(chunk(reasoning_content=part + " ") for part in thinking.split(" ") if thinking),
        *(chunk(content=word if at == 0 else " " + word) for at, word in enumerate(words)),
        chunk("stop"),
        usage(48, len(words)),
        "[DONE]",
    ]


def wire(surface: str) -> list[str]:
    """The answer's first frames in a surface's format."""
    words = ("Here", " is", " a", " version", " that", " keeps", " the", " order", ":")
    if surface == "chat":
        made = 'data: {"id":"chatcmpl-8f14e45f","object":"chat.completion.chunk","choices":[{"index":0,'
        first = f'{made}"delta":{{"role":"assistant","content":""}},"finish_reason":null}}]}}\n\n'
        return [first, *(f'{made}"delta":{{"content":"{word}"}},"finish_reason":null}}]}}\n\n' for word in words)]
    if surface == "messages":
        name = "content_block_delta"
        part = f'event: {name}\ndata: {{"type":"{name}","index":0,"delta":{{"type":"text_delta","text":"'
        return ['event: ping\ndata: {"type":"ping"}\n\n', *(f'{part}{word}"}}}}\n\n' for word in words)]
    name = "response.output_text.delta"
    return [
        f'event: {name}\ndata: {{"type":"{name}","item_id":"msg_8f14","delta":"{word}","sequence_number":{at}}}\n\n'
        for at, word in enumerate(words, 4)
    ]


def script(snapshots: int = 90) -> Script:
    """All of it."""
    played = Script()
    played.snapshots = [snapshot(at) for at in range(snapshots)]
    played.logs = logs()
    played.details = {detail().request.id: detail()}
    played.wires = {surface: wire(surface) for surface in ("chat", "messages", "responses")}
    played.hold_wire = True
    played.answers = [answer()]  # type: ignore[list-item]
    return played
