"""Logs and traces: what they tell of a request, and what they must not."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from millstream.engine.protocol import EngineStats
from millstream.ir.deltas import Content, Error, Finish, Start, Usage
from millstream.server.admin.side import Operator
from millstream.server.app import create_app
from millstream.server.telemetry.logs import LogRing, set_up_logging
from millstream.server.telemetry.timing import WINDOW_SECONDS, Timing
from millstream.server.telemetry.traces import Seldom, Tracing, TracingUnavailable, open_tracing
from support.provider import ScriptedProvider

PATH = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "secret words"}], "temperature": 0.5}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def stats() -> EngineStats:
    return EngineStats()


async def ask(provider: ScriptedProvider, operator: Operator, headers: dict[str, str] | None = None) -> httpx.Response:
    app = create_app(provider, stats, operator=operator)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.post(PATH, json=BODY, headers=headers)


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """What is logged is written here; the logging of the tests comes back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("millstream")
    before = root.level, root.handlers[:], ours.level
    root.handlers[:] = []
    yield io.StringIO()
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    ours.setLevel(before[2])


async def test_json_lines(logs: io.StringIO) -> None:
    set_up_logging("info", "json", logs)
    await ask(ScriptedProvider(), Operator(), {"x-request-id": "mine"})
    (line,) = [json.loads(line) for line in logs.getvalue().splitlines() if "millstream.requests" in line]
    assert (line["level"], line["request_id"], line["request"], line["outcome"]) == ("info", "mine", "mine", "finished")
    assert (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"]) == (5, 2, 3)
    assert line["time"].endswith("Z")
    assert "secret" not in logs.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
async def test_prompts_are_logged_only_if_that_is_asked_for(logs: io.StringIO, form: Any) -> None:
    ring = set_up_logging("info", form, logs, prompts=True)
    await ask(ScriptedProvider(), Operator(log_prompts=True))
    assert "secret words" in logs.getvalue()
    assert "Hello 0" in logs.getvalue()
    lines, written = ring.since(0)
    assert written == len(lines) > 0
    assert "secret" not in str(lines)


@pytest.mark.parametrize("prompts", [False, True])
async def test_words_of_an_exception_may_be_the_client_s(logs: io.StringIO, prompts: bool) -> None:
    ring = set_up_logging("warning", "text", logs, prompts=prompts)
    provider = ScriptedProvider()
    provider.refuse = ValueError("secret words")  # type: ignore[assignment]
    assert (await ask(provider, Operator())).status_code == 500
    assert "ValueError" in logs.getvalue()
    assert "provider.py" in logs.getvalue()
    assert ("secret" in logs.getvalue()) == prompts
    assert "secret" not in str(ring.since(0))


def test_lines_are_one_record_each_and_obey_nobody(logs: io.StringIO) -> None:
    set_up_logging("warning", "text", logs)
    log = logging.getLogger("millstream.test")
    log.warning("a\n2026-01-01 forged\x1b[31m\r")
    try:
        raise OSError("no space")
    except OSError:
        log.exception("outside of requests the words are told")
    first, second, *rest = logs.getvalue().splitlines()
    assert first.endswith("WARNING millstream.test: a")
    assert second == "    2026-01-01 forged\\x1b[31m\\r"
    assert any("no space" in line for line in rest)


def test_the_ring_has_what_the_stream_leaves_out(logs: io.StringIO) -> None:
    ring = set_up_logging("error", "text", logs)
    logging.getLogger("millstream.test").info("quiet")
    logging.getLogger("other").info("not ours")
    assert logs.getvalue() == ""
    assert [line.message for line in ring.since(0)[0]] == ["quiet"]


def test_the_ring_is_bounded() -> None:
    ring = LogRing(3)
    for number in range(5):
        ring.handle(logging.makeLogRecord({"msg": str(number), "levelno": logging.INFO}))
    for since, kept in ((0, "234"), (2, "234"), (4, "4"), (5, "")):
        lines, written = ring.since(since)
        assert ("".join(line.message for line in lines), written) == (kept, 5)


async def spans_of(script: Any, headers: dict[str, str] | None = None) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter, at_once=True)
    await ask(ScriptedProvider(script), Operator(listeners=(tracing.ended,)), headers)
    tracing.close()
    return list(exporter.get_finished_spans())


def hello(request: Any) -> list[Any]:
    return [Start(5, 2), Content("Hi"), Finish("length", Usage(5, 3, 2))]


async def test_a_request_is_a_span_with_its_stages() -> None:
    *stages, whole = await spans_of(hello, {"traceparent": PARENT})
    assert (whole.name, whole.kind) == ("chat tiny", SpanKind.SERVER)
    assert whole.parent is not None
    assert f"{whole.parent.trace_id:032x}-{whole.parent.span_id:016x}" == PARENT[3:52]
    attributes = dict(whole.attributes or {})
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.response.finish_reasons": ("length",),
    }
    assert expected.items() <= attributes.items()
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    assert {name for name in attributes if name.startswith("gen_ai.")} <= known
    assert "secret" not in str(attributes)
    assert [stage.name for stage in stages] == ["queue", "prefill", "decode"]
    assert whole.context is not None
    begin = whole.start_time
    for stage in stages:
        assert stage.parent is not None
        assert stage.parent.span_id == whole.context.span_id
        assert stage.start_time == begin
        begin = stage.end_time
    assert begin == whole.end_time


@pytest.mark.parametrize("parent", [None, "", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_without_a_sound_parent_a_trace_begins(parent: str | None) -> None:
    *_, whole = await spans_of(hello, {"traceparent": parent} if parent is not None else None)
    assert whole.parent is None


async def test_a_trace_that_is_not_sampled_makes_no_spans() -> None:
    assert await spans_of(hello, {"traceparent": PARENT[:-2] + "00"}) == []


async def test_failures_are_told() -> None:
    (queue, whole) = await spans_of(lambda request: [Error("secret", code="engine_error", status=503)])
    assert queue.name == "queue"
    assert whole.status.status_code is StatusCode.ERROR
    assert dict(whole.attributes or {})["error.type"] == "engine_error"
    assert "secret" not in str(whole.attributes) + str(whole.status.description)


def test_missing_libraries_and_bad_addresses_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TracingUnavailable, match="no address of a collector"):
        open_tracing("localhost:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingUnavailable, match=r"pip install 'millstream\[otel\]'"):
        open_tracing("http://localhost:4318")


def test_percentiles_are_of_the_last_minute() -> None:
    timing = Timing("name", "text", (0.01, 0.1, 1.0))
    assert timing.percentiles(0.0).p50 is None
    for index in range(1000):
        timing.observe(0.05, index / 100)
    told = timing.percentiles(10.0)
    for found in (told.p50, told.p95, told.p99):
        assert found == pytest.approx(0.05, rel=0.2)
    timing.observe(5.0, 11.0)
    assert timing.percentiles(11.0 + 2 * WINDOW_SECONDS).p50 is None
    (family,) = timing.collect()
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert buckets == {"0.01": 0, "0.1": 1000, "1.0": 1000, "+Inf": 1001}


class Stuck(InMemorySpanExporter):
    """As one whose collector does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = False
        self.shut = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.given_up = self.shut.wait(60)
        return SpanExportResult.FAILURE


async def test_a_collector_that_does_not_answer_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Stuck()
    tracing = Tracing(exporter)
    await ask(ScriptedProvider(hello), Operator(listeners=(tracing.ended,)))
    tracing.close(0.05)
    assert not exporter.given_up
    assert "the last traces are not sent" in caplog.text
    exporter.shut.set()


def test_an_exporter_that_fails_again_and_again_is_heard_once_a_minute() -> None:
    moments = iter((0.0, 1.0, 59.9, 60.0, 61.0, 130.0))
    seldom = Seldom(lambda: next(moments))
    record = logging.makeLogRecord({"msg": "x"})
    assert [seldom.filter(record) for _ in range(6)] == [True, False, False, True, False, True]
