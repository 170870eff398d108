"""Prometheus metrics: what clients experience is measured on the delta stream, what the engine does is asked at scrape.

docs/api.md lists the names. Of a request's time, the queue ends when its prompt is being computed, the prefill with the
first token and the decode with the last choice.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from millstream.engine.protocol import EngineStats, WaitReason
from millstream.ir.deltas import Delta, Error, Finish, Start, Usage
from millstream.ir.fold import UsageCounter
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Request

_FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_INTER_TOKEN_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 5)

_STAGE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_MODEL = "model_name"

_GAUGES = (
    ("requests_running", "running", "Sequences in the batch"),
    ("requests_waiting", "waiting", "Sequences in the queue"),
    ("kv_blocks_used", "kv_blocks_used", "Blocks of the KV cache in use"),
    ("kv_blocks", "kv_blocks_total", "Blocks of the KV cache"),
    ("grammar_cache_bytes", "grammar_bytes", "Memory of the compiled grammars that are kept, estimated"),
    ("seconds_since_step", "idle_seconds", "Seconds since the engine's last step"),
)
_COUNTERS = (
    ("engine_steps", "steps", "Steps of the engine"),
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of admitted sequences; n choices of a prompt count n times"),
    ("generated_tokens", "generated_tokens", "Tokens generated"),
    ("cached_tokens", "cached_tokens", "Prompt tokens taken from the prefix cache"),
    ("preemptions", "preemptions", "Sequences preempted"),
    ("draft_tokens", "draft_tokens", "Tokens tried ahead by speculation"),
    ("accepted_draft_tokens", "accepted_tokens", "Tokens tried ahead that were right"),
    ("forced_tokens", "forced_tokens", "Generated tokens that a grammar left no choice about, which were not sampled"),
    ("grammars_compiled", "grammars_compiled", "Grammars compiled for a request"),
    ("grammars_reused", "grammars_reused", "Requests whose grammar was compiled already"),
    ("engine_restarts", "restarts", "Times the engine process was started again"),
    ("resumed_streams", "resumed", "Sequences that went on after a restart of the engine process"),
)


class Metrics:
    """One registry per app, so that several apps may live in one process."""

    def __init__(self, open_requests: Callable[[], int], name_of: Callable[[str], str] = str) -> None:
        """``name_of``: what people call a tenant; its id is nobody's business."""
        self._name_of = name_of
        self._registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self._registry.register(self._engine)
        self._requests = Counter(
            "millstream_requests_total",
            "Requests by surface and outcome: ok, refused (4xx), failed (5xx or in mid-stream), cancelled",
            ("surface", "outcome"),
            registry=self._registry,
        )
        self._choices = Counter(
            "millstream_choices_total", "Finished choices by reason", ("reason",), registry=self._registry
        )
        self.first_token = Histogram(
            "millstream_time_to_first_token_seconds",
            "From the request's body to its first token",
            buckets=_FIRST_TOKEN_BUCKETS,
            registry=self._registry,
        )
        self.inter_token = _Intervals(
            "millstream_inter_token_seconds", "Between consecutive deltas of a choice", _INTER_TOKEN_BUCKETS
        )
        self._registry.register(self.inter_token)
        self.queue = self._stage("queue", "From the request's body until its prompt is being computed")
        self.prefill = self._stage("prefill", "From then to the first token")
        self.decode = self._stage("decode", "From the first token to the end of the last choice")
        self._tokens = Counter(
            "millstream_tenant_tokens_total",
            "Tokens of finished choices by tenant: prompt, cached (part of prompt), completion",
            ("tenant", "kind"),
            registry=self._registry,
        )
        Gauge("millstream_http_requests_open", "Requests being answered", registry=self._registry).set_function(
            open_requests
        )

    def _stage(self, name: str, text: str) -> Histogram:
        return Histogram(f"millstream_request_{name}_seconds", text, buckets=_STAGE_BUCKETS, registry=self._registry)

    def served(self, tenant: str, usage: Usage) -> None:
        """Count the tokens of an answer."""
        name = self._name_of(tenant)
        for kind, count in (
            ("prompt", usage.prompt_tokens),
            ("cached", usage.cached_tokens),
            ("completion", usage.completion_tokens),
        ):
            self._tokens.labels(name, kind).inc(count)

    def request(self, surface: str, outcome: str) -> None:
        """Count a request."""
        self._requests.labels(surface, outcome).inc()

    def choice(self, reason: str) -> None:
        """Count a finished choice."""
        self._choices.labels(reason).inc()

    def measured(self, stream: DeltaStream, surface: str, request: Request, since: float) -> DeltaStream:
        """The same stream, measured as it is read. ``since``: `time.perf_counter` when the request was there."""
        return _Measured(stream, self, surface, request, since)

    def exposition(self, engines: Mapping[str, EngineStats | None]) -> bytes:
        """The text format. ``engines``: by model; None: the engine did not answer;
        its counters are then the last that are known."""
        self._engine.told(engines)
        return generate_latest(self._registry)


class _Measured:
    def __init__(self, stream: DeltaStream, metrics: Metrics, surface: str, request: Request, since: float) -> None:
        self._stream = stream
        self._metrics = metrics
        self._surface = surface
        self._tenant = request.tenant
        self._usage = UsageCounter(request.choices)
        self._since = since
        self._started: float | None = None
        self._first = 0.0
        self._last: dict[int, float] = {}
        self._counted = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._stream.__anext__()
        kind = type(delta)
        if kind is Error:
            self._count("refused" if delta.status < 500 else "failed")  # type: ignore[union-attr]
        elif kind is Finish:
            self._usage.feed(delta)
            self._metrics.choice(delta.reason)  # type: ignore[union-attr]
            if self._usage.open_choices == 0:
                self._end()
        elif kind is Start:
            self._usage.feed(delta)
            self._start()
        else:
            self._token(delta.choice)  # type: ignore[union-attr]
        return delta

    async def aclose(self) -> None:
        self._count("cancelled")
        await self._stream.aclose()

    def _token(self, choice: int) -> None:
        now = time.perf_counter()
        if not self._last:
            self._first = now
            self._metrics.first_token.observe(now - self._since)
            if self._started is not None:
                self._metrics.prefill.observe(now - self._started)
        last = self._last.get(choice)
        if last is not None:
            self._metrics.inter_token.observe(now - last)
        self._last[choice] = now

    def _start(self) -> None:
        if self._started is None:
            self._started = time.perf_counter()
            self._metrics.queue.observe(self._started - self._since)

    def _end(self) -> None:
        self._count("ok")
        self._metrics.served(self._tenant, self._usage.closed)
        if self._last:
            self._metrics.decode.observe(time.perf_counter() - self._first)

    def _count(self, outcome: str) -> None:
        if not self._counted:
            self._counted = True
            self._metrics.request(self._surface, outcome)


class _Intervals(Collector):
    """A histogram for what happens once per token: written and read in one thread, so without the library's locks."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Metric]:
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


class _EngineCollector(Collector):
    """The last snapshots of the engines as metric families, labelled with the model as vLLM's and SGLang's are."""

    def __init__(self) -> None:
        self._answers: Mapping[str, EngineStats | None] = {}
        self._counts: dict[str, EngineStats] = {}

    def told(self, engines: Mapping[str, EngineStats | None]) -> None:
        """What the engines answered, by model; None: one did not."""
        self._answers = engines
        self._counts = {
            model: known for model, stats in engines.items() if (known := stats or self._counts.get(model)) is not None
        }

    def collect(self) -> Iterable[Metric]:
        told = {model: stats for model, stats in self._answers.items() if stats is not None}
        up = GaugeMetricFamily("millstream_engine_up", "Whether the engine answered", labels=[_MODEL])
        for model, stats in self._answers.items():
            up.add_metric([model], stats is not None and stats.outage is None)
        yield up
        # What is now, a silent engine has none of; what was counted neither vanishes nor goes back.
        for kind, table, known in ((GaugeMetricFamily, _GAUGES, told), (CounterMetricFamily, _COUNTERS, self._counts)):
            for name, field, text in table:
                family = kind(f"millstream_{name}", text, labels=[_MODEL])
                for model, stats in known.items():
                    family.add_metric([model], getattr(stats, field))
                yield family
        yield from self._derived(told)

    def _derived(self, told: Mapping[str, EngineStats]) -> Iterable[Metric]:
        waits = GaugeMetricFamily(
            "millstream_requests_waiting_by_reason",
            "Sequences that do not advance, by the reason",
            labels=[_MODEL, "reason"],
        )
        usage = GaugeMetricFamily(
            "millstream_kv_cache_usage_ratio", "Part of the KV cache in use, 0 to 1", labels=[_MODEL]
        )
        for model, stats in told.items():
            for reason in get_args(WaitReason):
                waits.add_metric([model, reason], stats.waits.get(reason, 0))
            if stats.kv_blocks_total:
                usage.add_metric([model], stats.kv_blocks_used / stats.kv_blocks_total)
        yield waits
        yield usage
