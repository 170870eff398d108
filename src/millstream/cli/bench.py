"""`bench`: how fast the engine is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def bench(
    model: Annotated[
        str | None,
        typer.Argument(help="A .gguf file, or a name that `list` shows; the plan's, or SmolLM2 135M, if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run the cases of this JSON file instead of the standard ones.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One sample a case, fewer tokens.")] = False,
    threads: Annotated[int, typer.Option("--threads", "-t", metavar="N", min=0, max=1024, help="0: all cores.")] = 0,
    step_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=65536, help="Most tokens of one step; the engine's if not given."),
    ] = None,
    no_fetch: Annotated[bool, typer.Option("--no-fetch", help="Fail instead of fetching a missing model.")] = False,
    api: Annotated[
        bool, typer.Option("--api", help="Measure the HTTP API alone, without a model: its time per streamed token.")
    ] = False,
    service: Annotated[
        bool,
        typer.Option(
            "--service",
            help="Measure a server: the first token beside a long prompt, and what drafts bring.",
        ),
    ] = False,
    compare_url: Annotated[
        str | None, typer.Option(metavar="URL", help="With --api: a running server to measure too.")
    ] = None,
    compare_pid: Annotated[
        int | None, typer.Option(metavar="PID", min=1, help="The process id of that server's API process.")
    ] = None,
) -> None:
    """Measure speed, start and memory of the engine on this machine.

    Results are of use only if nothing else runs meanwhile.
    """
    if api:
        _bench_api(model, as_json=as_json, quick=quick, compare_url=compare_url, compare_pid=compare_pid)
        return
    if compare_url is not None or compare_pid is not None:
        raise typer.BadParameter("--compare-url and --compare-pid go with --api.")
    if service:
        _bench_service(model, as_json=as_json, quick=quick, fetch=not no_fetch)
        return
    import msgspec
    from rich.console import Console

    from millstream.bench.plan import BenchError, read_plan
    from millstream.bench.report import render
    from millstream.bench.run import Options, run_benchmark
    from millstream.cli.errors import CliError
    from millstream.cli.fetching import find_or_fetch
    from millstream.models.errors import ModelFileError

    errors = Console(stderr=True)
    try:
        cases = read_plan(plan) if plan is not None else None
        preferred = cases.models.get("gguf_q4_1") if cases is not None else None
        path = find_or_fetch(model or preferred, fetch=not no_fetch)
        options = Options(plan=cases, threads=threads, step_tokens=step_tokens, quick=quick, extras=cases is None)
        report = run_benchmark(path, options, on_stage=lambda stage: _tell(errors, stage))
    except (BenchError, ModelFileError) as error:
        raise CliError(str(error)) from None
    if cases is not None and as_json:
        print(msgspec.json.encode(report.adapter_line()).decode(), flush=True)
    elif as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
    else:
        Console().print(render(report))


def _bench_api(
    model: str | None, *, as_json: bool, quick: bool, compare_url: str | None, compare_pid: int | None
) -> None:
    import msgspec
    from rich.console import Console

    from millstream.bench.api import ApiOptions, Target, run_api_benchmark
    from millstream.bench.api_report import render_api
    from millstream.bench.plan import BenchError
    from millstream.cli.errors import CliError

    if (compare_url is None) != (compare_pid is None):
        raise typer.BadParameter("--compare-url and --compare-pid go together.")
    if compare_url is None and model is not None:
        raise typer.BadParameter("--api takes a model only as the name of the one that the compared server serves.")
    target = None
    if compare_url is not None and compare_pid is not None:
        if model is None:
            raise typer.BadParameter("Name the model that the compared server serves.")
        target = Target(url=compare_url, pid=compare_pid, model=model)
    options = ApiOptions(streams=(1, 16, 100), tokens=32, sample_tokens=1, samples=1) if quick else ApiOptions()
    errors = Console(stderr=True)
    try:
        report = run_api_benchmark(options, compare=target, on_stage=lambda stage: _tell(errors, stage))
    except (BenchError, OSError) as error:
        raise CliError(str(error)) from None
    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
    else:
        Console().print(render_api(report))


def _bench_service(model: str | None, *, as_json: bool, quick: bool, fetch: bool) -> None:
    import msgspec
    from rich.console import Console

    from millstream.bench.plan import BenchError
    from millstream.bench.service import run_service_benchmark
    from millstream.cli.errors import CliError
    from millstream.cli.fetching import find_or_fetch

    errors = Console(stderr=True)
    try:
        report = run_service_benchmark(
            find_or_fetch(model, fetch=fetch), samples=1 if quick else 5, on_stage=lambda stage: _tell(errors, stage)
        )
    except BenchError as error:
        raise CliError(str(error)) from None
    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    for line in report.lines():
        print(line, flush=True)


def _tell(console: Console, stage: str) -> None:
    """A plain line: a spinner's thread would take time from what is measured."""
    if console.is_terminal:
        console.print(stage, style="dim")
