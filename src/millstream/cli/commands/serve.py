"""`serve`: the options of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from millstream.cli.key_options import ApiKeyOption, KeysFileOption
from millstream.cli.options import (
    DEFAULT_JOURNAL_BYTES,
    ActivationsOption,
    ContextOption,
    EngineOptions,
    Formats,
    JournalOptions,
    KvCacheOption,
    KvTypeOption,
    ModelsArgument,
    NoFetchOption,
    PoolingOption,
    ReasoningFormatOption,
    RefusalsOption,
    ServerOptions,
    TelemetryOptions,
    ThreadsOption,
    ToolFormatOption,
    is_number,
    parse_size,
)

LogLevel = Literal["error", "warning", "info", "debug"]
LEVELS = ", ".join(get_args(LogLevel))

LONGEST_SECONDS = 86_400
"""No time limit is longer, as in requests: clocks of event loops do not take every number."""


def serve(
    models: ModelsArgument = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is every network.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="0 picks a free one.")
    ] = 8000,
    model_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="What clients call the model; its own name if not given. Repeated: of each in order."
        ),
    ] = None,
    threads: ThreadsOption = 0,
    ctx: ContextOption = None,
    kv_cache: KvCacheOption = None,
    kv_type: KvTypeOption = "f16",
    activations: ActivationsOption = "int12",
    max_batch: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1024, rich_help_panel="Engine", help="Most requests that are worked on at once."
        ),
    ] = 64,
    max_queue: Annotated[
        int,
        typer.Option(metavar="N", min=0, rich_help_panel="Engine", help="Most requests that wait; more get a 429."),
    ] = 256,
    no_prefix_cache: Annotated[
        bool,
        typer.Option("--no-prefix-cache", rich_help_panel="Engine", help="Don't keep prompt beginnings for reuse."),
    ] = False,
    step_deadline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=LONGEST_SECONDS,
            callback=is_number,
            rich_help_panel="Engine",
            help="A silent engine that has work is restarted after this long at most; 60 if not given.",
        ),
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.001,
            max=LONGEST_SECONDS,
            callback=is_number,
            help="Time limit of requests that name none in `timeout`.",
        ),
    ] = None,
    stall_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=LONGEST_SECONDS,
            callback=is_number,
            help="A client that reads nothing for this long is cut off.",
        ),
    ] = 300.0,
    tool_format: ToolFormatOption = None,
    reasoning_format: ReasoningFormatOption = None,
    refusals: RefusalsOption = "off",
    pooling: PoolingOption = None,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", case_sensitive=False, help=f"How much goes to stderr: {LEVELS}.")
    ] = "warning",
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(metavar="text|json", rich_help_panel="Telemetry", help="How a log line looks."),
    ] = "text",
    log_prompts: Annotated[
        bool,
        typer.Option(
            "--log-prompts",
            rich_help_panel="Telemetry",
            help="Log what requests ask and are answered; nothing of it is logged otherwise.",
        ),
    ] = False,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel="Telemetry",
            help="Send OpenTelemetry traces to this collector, as http://localhost:4318; needs `millstream\\[otel]`.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Web pages from here may call the server; * is any; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name by which a server on a loopback address is called, as by a proxy; may be repeated.",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel="Journal",
            help="Record every request here, prompts and answers included, for `journal` and `replay`.",
        ),
    ] = None,
    journal_limit: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=parse_size,
            rich_help_panel="Journal",
            help="Room for the journal, 1G if not given; the oldest records go first.",
        ),
    ] = None,
    api_key: ApiKeyOption = None,
    keys_file: KeysFileOption = None,
    tui: Annotated[
        bool, typer.Option("--tui", help="Show it in `top` meanwhile; leaving that ends the server.")
    ] = False,
    no_fetch: NoFetchOption = False,
) -> None:
    """Serve models over HTTP, by OpenAI's and Anthropic's APIs.

    Prints one line with the address once the models are loaded and the socket listens. Ctrl-C finishes open requests.
    Each model has an engine process of its own, with these options; they share the processors.
    """
    if tui:
        from millstream.cli.top import serve_with_top

        return serve_with_top(host, port)
    from millstream.cli.serve import ServeOptions, serve_models

    serve_models(
        models or [None],
        ServeOptions(
            host=host,
            port=port,
            model_names=tuple(model_name or ()),
            telemetry=TelemetryOptions(
                log_level=log_level, log_format=log_format, log_prompts=log_prompts, otlp_endpoint=otlp_endpoint
            ),
            fetch=not no_fetch,
            allow_origins=tuple(allow_origin or ()),
            allow_hosts=tuple(allow_host or ()),
            formats=Formats(tools=tool_format, reasoning=reasoning_format, refusals=refusals == "on"),
            pooling=pooling,
            journal=JournalOptions(folder=journal, limit=journal_limit or DEFAULT_JOURNAL_BYTES)
            if journal is not None
            else None,
            server=ServerOptions(
                request_timeout=request_timeout, stall_timeout=stall_timeout, keys_file=keys_file, api_key=api_key
            ),
            engine=EngineOptions(
                threads=threads,
                context_length=ctx,
                kv_cache=kv_cache,
                kv_type=kv_type,
                activations=activations,
                max_sequences=max_batch,
                max_queue=max_queue,
                prefix_cache=not no_prefix_cache,
                step_deadline=step_deadline,
            ),
        ),
    )
