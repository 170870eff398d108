"""`bench`: how fast the engine, the HTTP API and whole servers are on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from millstream.cli.configuration.check import suggestion
from millstream.cli.options import ActivationsOption, KvTypeOption, is_number
from millstream.cli.terminal import is_terminal, note

if TYPE_CHECKING:
    from millstream.bench.http.run import Target

_DEFAULT = "engine"

ModelArgument = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="A .gguf file, or a name that `list` shows.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="One sample a case, fewer tokens.")]
NoFetchOption = Annotated[bool, typer.Option("--no-fetch", help="Fail instead of fetching a missing model.")]


class _Group(TyperGroup):
    """What is no command's name is for `engine`: ``bench MODEL`` is ``bench engine MODEL``. A word that is nearly a
    command's name and names no model stays, so that the nearest command is told."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or not (args[0] in (*self.commands, *ctx.help_option_names) or self._is_mistyped(args[0])):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def _is_mistyped(self, word: str) -> bool:
        from millstream.cli.fetching import names_model

        return suggestion(word, self.commands) != "" and not names_model(word)


bench = typer.Typer(
    cls=_Group,
    help="Measure the engine (if no other is named), the HTTP API or whole servers. "
    "Results are of use only if nothing else runs meanwhile.",
)


@bench.command()
def engine(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A .gguf file, or a name that `list` shows; the plan's, or SmolLM2 135M, if not given.",
        ),
    ] = None,
    as_json: JsonOption = False,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run the cases of this JSON file instead of the standard ones.")
    ] = None,
    quick: QuickOption = False,
    threads: Annotated[int, typer.Option("--threads", "-t", metavar="N", min=0, max=1024, help="0: all cores.")] = 0,
    kv_type: KvTypeOption = "f16",
    activations: ActivationsOption = "int12",
    step_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=65536, help="Most tokens of one step; the engine's if not given."),
    ] = None,
    no_fetch: NoFetchOption = False,
) -> None:
    """Measure speed, start and memory of the engine, without HTTP."""
    from millstream.bench.plan import read_plan
    from millstream.bench.run import Options, run_benchmark
    from millstream.cli.fetching import find_or_fetch

    with _failing():
        cases = read_plan(plan) if plan is not None else None
        preferred = cases.models.get("gguf_q4_1") if cases is not None else None
        path = find_or_fetch(model or preferred, fetch=not no_fetch)
        options = Options(
            plan=cases,
            threads=threads,
            kv_type=kv_type,
            activations=activations,
            step_tokens=step_tokens,
            quick=quick,
            extras=cases is None,
        )
        report = run_benchmark(path, options, on_stage=_tell)
    if not _printed(report if cases is None else report.adapter_line(), as_json):
        from rich.console import Console

        from millstream.bench.report import render

        Console().print(render(report))


@bench.command()
def api(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="With --compare-url: the model that the compared server serves."),
    ] = None,
    as_json: JsonOption = False,
    quick: QuickOption = False,
    compare_url: Annotated[str | None, typer.Option(metavar="URL", help="A running server to measure too.")] = None,
    compare_pid: Annotated[
        int | None, typer.Option(metavar="PID", min=1, help="The process id of that server's API process.")
    ] = None,
) -> None:
    """Measure the HTTP API alone, without a model: its time per streamed token."""
    from rich.console import Console

    from millstream.bench.api import ApiOptions, Target, run_api_benchmark
    from millstream.bench.api_report import render_api

    if (compare_url is None) != (compare_pid is None):
        raise typer.BadParameter("--compare-url and --compare-pid go together.")
    if compare_url is None and model is not None:
        raise typer.BadParameter("A model is only the name of the one that the compared server serves.")
    target = None
    if compare_url is not None and compare_pid is not None:
        if model is None:
            raise typer.BadParameter("Name the model that the compared server serves.")
        target = Target(url=compare_url, pid=compare_pid, model=model)
    options = ApiOptions(streams=(1, 16, 100), tokens=32, sample_tokens=1, samples=1) if quick else ApiOptions()
    with _failing():
        report = run_api_benchmark(options, compare=target, on_stage=_tell)
    if not _printed(report, as_json):
        Console().print(render_api(report))


@bench.command()
def service(
    model: ModelArgument = None,
    as_json: JsonOption = False,
    quick: QuickOption = False,
    no_fetch: NoFetchOption = False,
) -> None:
    """Measure a server: the first token beside a long prompt, and what drafts bring."""
    from millstream.bench.service import run_service_benchmark
    from millstream.cli.fetching import find_or_fetch

    with _failing():
        path = find_or_fetch(model, fetch=not no_fetch)
        report = run_service_benchmark(path, samples=1 if quick else 5, on_stage=_tell)
    if not _printed(report, as_json):
        for line in report.lines():
            print(line, flush=True)


@bench.command()
def http(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL...", help="Servers to measure in turns; ratios are to the first.")
    ],
    workload: Annotated[
        str,
        typer.Option(
            "--workload", "-w", metavar="NAME|FILE", help="chat, one, shared, documents, poisson, or a TOML file."
        ),
    ] = "chat",
    rounds: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 3,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="One per server; their first models if not given.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", envvar="MILLSTREAM_API_KEY", help="One for all servers, or one per server."),
    ] = None,
    good_first_token: Annotated[
        float | None,
        typer.Option(metavar="MS", min=0, callback=is_number, help="Goodput: answers whose first token came in time."),
    ] = None,
    good_per_token: Annotated[
        float | None,
        typer.Option(
            metavar="MS", min=0, callback=is_number, help="Goodput: and whose other tokens took no longer each."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the prompts; another one gives others.")] = 1,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw the distributions of times.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Save tables and plots as a picture.", dir_okay=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure servers over HTTP as their clients see them: any that speak OpenAI chat, in turns.

    A workload file describes prompts, arrivals and lengths; docs/benchmarks.md shows one.
    """
    from rich.console import Console

    from millstream.bench.http.figures import Limit
    from millstream.bench.http.report import render_http, save_picture
    from millstream.bench.http.run import Plan, run_http_benchmark
    from millstream.bench.http.workload import load_workload
    from millstream.cli.errors import CliError

    if picture is not None and not picture.absolute().parent.is_dir():
        raise CliError(f"cannot write {picture}: there is no folder {picture.parent}")
    limit = Limit(
        first_token=None if good_first_token is None else good_first_token / 1000,
        per_token=None if good_per_token is None else good_per_token / 1000,
    )
    with _failing():
        plan = Plan(workload=load_workload(workload), rounds=rounds, limit=limit, seed=seed)
        targets = _targets(urls, model or [], key or [])
        report = run_http_benchmark(targets, plan, on_stage=_tell)
    if not _printed(report, as_json):
        console = Console()
        console.print(render_http(report, plot=plot, width=min(console.width, 110)))
    if picture is not None:
        try:
            save_picture(report, picture)
        except OSError as error:
            raise CliError(f"cannot write {picture}: {error.strerror}") from None


def _targets(urls: list[str], models: list[str], keys: list[str]) -> list[Target]:
    from millstream.bench.http.run import Target

    if len(models) not in (0, len(urls)):
        raise typer.BadParameter(f"Name {len(urls)} models, one per server, or none.", param_hint="--model")
    if len(keys) not in (0, 1, len(urls)):
        raise typer.BadParameter(f"Give one key for all servers, or {len(urls)}.", param_hint="--key")
    return [
        Target(url=url, model=models[at] if models else None, key=keys[at % len(keys)] if keys else None)
        for at, url in enumerate(urls)
    ]


@contextmanager
def _failing() -> Iterator[None]:
    """What stops a benchmark becomes the command's error."""
    from millstream.bench.errors import BenchError
    from millstream.cli.errors import CliError
    from millstream.models.errors import ModelFileError

    try:
        yield
    except (BenchError, ModelFileError, OSError) as error:
        raise CliError(str(error)) from None


def _printed(report: Any, as_json: bool) -> bool:
    """Whether the report was wanted as JSON, and printed."""
    import msgspec

    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
    return as_json


def _tell(stage: str) -> None:
    """A plain line: a spinner's thread would take time from what is measured."""
    if is_terminal(sys.stderr):
        note(stage)
