"""What a server's operator gets, from the options of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.cli.errors import CliError
from millstream.cli.options import TelemetryOptions
from millstream.server.admin.side import Operator
from millstream.server.telemetry.logs import LogRing
from millstream.server.telemetry.traces import Tracing, TracingUnavailable, open_tracing


@contextmanager
def operator_of(options: TelemetryOptions, logs: LogRing) -> Iterator[Operator]:
    """The operator's side of a server. Traces that wait are sent at the end.

    Raises:
        CliError: traces are asked for and cannot be had.
    """
    tracing = tracing_of(options)
    try:
        yield Operator(
            logs=logs,
            listeners=(tracing.ended,) if tracing is not None else (),
            log_prompts=options.log_prompts,
        )
    finally:
        if tracing is not None:
            tracing.close()


def tracing_of(options: TelemetryOptions) -> Tracing | None:
    """None: no traces are asked for. Raises `CliError`."""
    if options.otlp_endpoint is None:
        return None
    try:
        return open_tracing(options.otlp_endpoint)
    except TracingUnavailable as error:
        raise CliError(f"--otlp-endpoint: {error}") from None
