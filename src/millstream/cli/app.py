"""The commands. Each imports what it needs when it runs, so that ``--help`` costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from millstream.cli.bench import bench
from millstream.cli.lint import lint
from millstream.cli.options import (
    MODEL_HELP,
    ContextOption,
    EngineOptions,
    Formats,
    KvCacheOption,
    KvTypeOption,
    NoFetchOption,
    PoolingOption,
    ReasoningFormatOption,
    RefusalsOption,
    ServerOptions,
    ThreadsOption,
    ToolFormatOption,
)
from millstream.cli.selftest import selftest
from millstream.cli.talking import Talk, talking

LogLevel = Literal["error", "warning", "info", "debug"]
LEVELS = ", ".join(get_args(LogLevel))

app = typer.Typer(
    name="millstream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve open-weight language models on machines you own.",
    epilog="Exit codes: 0 done, 1 failed (stderr says why), 2 wrong usage, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from millstream import __version__

        print(f"millstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    model: Annotated[str | None, typer.Argument(help=MODEL_HELP)] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is every network.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="0 picks a free one.")
    ] = 8000,
    model_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What clients call the model; its own name if not given.")
    ] = None,
    threads: ThreadsOption = 0,
    ctx: ContextOption = None,
    kv_cache: KvCacheOption = None,
    kv_type: KvTypeOption = "f16",
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
            rich_help_panel="Engine",
            help="A silent engine that has work is restarted after this long at most; 60 if not given.",
        ),
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="Time limit of requests that name none in `timeout`."),
    ] = None,
    stall_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="A client that reads nothing for this long is cut off.")
    ] = 300.0,
    tool_format: ToolFormatOption = None,
    reasoning_format: ReasoningFormatOption = None,
    refusals: RefusalsOption = "off",
    pooling: PoolingOption = None,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", case_sensitive=False, help=f"How much goes to stderr: {LEVELS}.")
    ] = "warning",
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
    no_fetch: NoFetchOption = False,
) -> None:
    """Serve a model over HTTP (OpenAI-compatible).

    Prints one line with the address once the model is loaded and the socket listens. Ctrl-C finishes open requests.
    """
    from millstream.cli.serve import ServeOptions, serve_model

    serve_model(
        model,
        ServeOptions(
            host=host,
            port=port,
            model_name=model_name,
            log_level=log_level,
            fetch=not no_fetch,
            allow_origins=tuple(allow_origin or ()),
            allow_hosts=tuple(allow_host or ()),
            formats=Formats(tools=tool_format, reasoning=reasoning_format, refusals=refusals == "on"),
            pooling=pooling,
            server=ServerOptions(request_timeout=request_timeout, stall_timeout=stall_timeout),
            engine=EngineOptions(
                threads=threads,
                context_length=ctx,
                kv_cache=kv_cache,
                kv_type=kv_type,
                max_sequences=max_batch,
                max_queue=max_queue,
                prefix_cache=not no_prefix_cache,
                step_deadline=step_deadline,
            ),
        ),
    )


@app.command()
@talking
def run(
    prompt: Annotated[str, typer.Argument(help="What to answer; - reads it from standard input.")],
    talk: Talk,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text itself, without the chat template.")] = False,
) -> None:
    """Answer one prompt on the terminal, without a server."""
    from millstream.cli.generate import read_prompt, run_prompt

    run_prompt(read_prompt(prompt), talk, raw=raw)


@app.command()
@talking
def chat(talk: Talk) -> None:
    """Talk with a model on the terminal, without a server."""
    from millstream.cli.chat import chat as converse

    converse(talk)


@app.command()
def pull(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Names that `list` shows.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All models of the catalogue.")] = False,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Put them here instead of the model cache.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Don't print the paths.")] = False,
) -> None:
    """Fetch models (without a name: the default one) and print where they are."""
    from millstream.cli.models import pull_models

    pull_models(names or [], every=every, folder=to, quiet=quiet)


@app.command("list")
def list_() -> None:
    """List the models that are here and those that can be pulled."""
    from millstream.cli.models import list_models

    list_models()


app.command()(bench)
app.command()(lint)
app.command()(selftest)
