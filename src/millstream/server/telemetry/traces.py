"""OpenTelemetry traces: each request that generated is a span with its stages as children, named after the semantic
conventions for generative AI. They are made from the entry of a request when it has ended, so a token costs nothing.

The libraries are optional: ``pip install 'millstream[otel]'``. What OpenTelemetry reads from the environment (headers
of the exporter, sampler, resource attributes) holds here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from millstream import __version__
from millstream.server.admin.entry import Entry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}
"""By surface; all others are chats."""

_ASKED = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
}
"""Parameters by their names in the conventions; others are attributes of ours."""


class TracingUnavailable(Exception):
    """Traces were asked for and cannot be had; the message says what to do."""


class Tracing:
    """Makes spans of ended requests. ``exporter``: where they go; they are sent from a thread, in batches."""

    def __init__(self, exporter: SpanExporter, *, at_once: bool = False) -> None:
        """``at_once``: each is handed to the exporter when it is made."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        resource = Resource.create({"service.name": "millstream", "service.version": __version__})
        # The server outlives its event loop by nothing: `close` is called by whoever opened it.
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("millstream", __version__)

    def ended(self, entry: Entry) -> None:
        """The spans of a request that has left the server."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        facts = entry.facts
        parent = TraceContextTextMapPropagator().extract({"traceparent": facts.parent} if facts.parent else {})
        operation = _OPERATIONS.get(facts.surface, "chat")
        span = self._tracer.start_span(
            f"{operation} {facts.model}",
            context=parent,
            kind=SpanKind.SERVER,
            start_time=_at(entry, entry.since),
            attributes={"gen_ai.operation.name": operation, **_attributes(entry)},
        )
        if entry.end == "failed":
            span.set_status(StatusCode.ERROR, entry.problem)
        for event in entry.timeline:
            span.add_event(
                event.kind, {"note": event.note} if event.note else {}, _at(entry, entry.since + event.seconds)
            )
        inside = set_span_in_context(span, parent)
        for name, begin, end in _stages(entry):
            stage: Span = self._tracer.start_span(name, context=inside, start_time=_at(entry, begin))
            stage.end(_at(entry, end))
        span.end(_at(entry, entry.ended or entry.since))

    def close(self) -> None:
        """Send what waits, and stop the thread."""
        self._provider.shutdown()


def open_tracing(endpoint: str) -> Tracing:
    """Traces that go to an OTLP collector over HTTP: ``http://host:4318``, or a whole URL of its traces.

    Raises:
        TracingUnavailable: that is no URL, or the libraries are missing.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise TracingUnavailable(f"{endpoint!r} is no address of a collector; write http://localhost:4318.")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise TracingUnavailable(
            "Traces need OpenTelemetry's libraries: .venv/bin/pip install 'millstream[otel]'."
        ) from None
    path = parts.path if parts.path not in ("", "/") else "/v1/traces"
    return Tracing(OTLPSpanExporter(endpoint=parts._replace(path=path).geturl()))


def _at(entry: Entry, moment: float) -> int:
    """A time of the entry's clock in nanoseconds since 1970."""
    return int((entry.began + (moment - entry.since)) * 1e9)


def _stages(entry: Entry) -> list[tuple[str, float, float]]:
    """What it did until when: it waited, its prompt was computed, it was answered."""
    end = entry.ended or entry.since
    marks = [
        ("queue", entry.since),
        ("prefill", entry.started),
        ("decode", entry.first),
    ]
    reached = [(name, begin) for name, begin in marks if begin is not None]
    ends = [*(begin for _, begin in reached[1:]), end]
    return [(name, begin, until) for (name, begin), until in zip(reached, ends, strict=True)]


def _attributes(entry: Entry) -> dict[str, Any]:
    facts, view = entry.facts, entry.view()
    attributes: dict[str, Any] = {
        "gen_ai.provider.name": "millstream",
        "gen_ai.request.model": facts.model,
        "gen_ai.response.model": facts.model,
        "gen_ai.usage.input_tokens": view.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": view.cached_tokens,
        "gen_ai.usage.output_tokens": view.completion_tokens,
        "millstream.request.id": facts.id,
        "millstream.surface": facts.surface,
        "millstream.stream": facts.streamed,
    }
    if entry.reasons:
        attributes["gen_ai.response.finish_reasons"] = entry.reasons
    if facts.choices != 1 and facts.surface != "embeddings":
        attributes["gen_ai.request.choice.count"] = facts.choices
    if facts.key:
        attributes["millstream.key"] = facts.key
    if view.first_token_seconds is not None:
        attributes["millstream.first_token_seconds"] = view.first_token_seconds
    if entry.end != "finished":
        attributes["error.type"] = entry.problem or "cancelled"
    return attributes | {_name(name): value for name, value in facts.asked.items()}


def _name(parameter: str) -> str:
    return _ASKED.get(parameter, f"millstream.request.{parameter}")
