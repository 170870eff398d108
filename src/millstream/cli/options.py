"""Command-line options that several commands share, and the values they take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
import typer

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([KMG])(?:i?B)?", re.IGNORECASE)
_TOKENS = re.compile(r"(\d{1,12})\s*(?:t|tok|tokens)")


class KvCache(msgspec.Struct, frozen=True):
    """Size of the KV cache: exactly one of ``bytes`` and ``tokens`` is set."""

    bytes: int | None = None
    tokens: int | None = None


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the engine; None and 0 leave the choice to it. ``step_deadline``: seconds."""

    threads: int = 0
    context_length: int | None = None
    kv_cache: KvCache | None = None
    kv_type: Literal["f16", "int8"] = "f16"
    max_sequences: int | None = None
    max_queue: int | None = None
    prefix_cache: bool = True
    step_deadline: float | None = None


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about clients, in seconds. ``request_timeout``: for requests that name none;
    ``stall_timeout``: for clients that stop reading."""

    request_timeout: float | None = None
    stall_timeout: float = 300.0


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """How the model writes tool calls and reasoning, by the names of `millstream.parsing.registry`; None: as its chat
    template says. ``refusals``: tell answers that decline as such."""

    tools: str | None = None
    reasoning: str | None = None
    refusals: bool = False


def parse_kv_cache(text: str) -> KvCache:
    """``512M``, ``2GiB`` (binary units) or ``32768t`` / ``32768 tokens``."""
    text = text.strip()
    if match := _TOKENS.fullmatch(text):
        tokens = int(match[1])
        if tokens > 0:
            return KvCache(tokens=tokens)
    elif match := _SIZE.fullmatch(text):
        size = int(float(match[1]) * _UNITS[match[2].upper()])
        if size > 0:
            return KvCache(bytes=size)
    raise typer.BadParameter(f"{text!r} is not a size; write 512M or 2G for bytes, 32768t for tokens")


def parse_tool_format(text: str) -> str:
    """A name of `millstream.parsing.registry.TOOL_FORMATS`."""
    from millstream.parsing.registry import TOOL_FORMATS

    return _known(text, TOOL_FORMATS)


def parse_reasoning_format(text: str) -> str:
    """A name of `millstream.parsing.registry.REASONING_FORMATS`."""
    from millstream.parsing.registry import REASONING_FORMATS

    return _known(text, REASONING_FORMATS)


def _known(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name not in names:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(names)}")
    return name


_ENGINE = "Engine"
_FORMATS = "Formats"
_SAMPLING = "Sampling"
MODEL_HELP = "A .gguf file, or a name that `list` shows; SmolLM2 135M if not given."

ModelOption = Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL", help=MODEL_HELP)]
NoFetchOption = Annotated[bool, typer.Option("--no-fetch", help="Fail instead of fetching a model that is not here.")]
SystemOption = Annotated[
    str | None, typer.Option("--system", "-s", metavar="TEXT", help="Instructions before the conversation.")
]
StatsOption = Annotated[bool, typer.Option("--stats", help="Print token counts and speed to stderr at the end.")]

ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads", "-t", metavar="N", min=0, max=1024, help="Threads; 0: all cores.", rich_help_panel=_ENGINE
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--ctx", metavar="N", min=1, help="Most tokens of prompt and answer together; the model's if not given.",
        rich_help_panel=_ENGINE,
    ),
]  # fmt: skip
KvCacheOption = Annotated[
    KvCache | None,
    typer.Option(
        "--kv-cache", metavar="SIZE", parser=parse_kv_cache, rich_help_panel=_ENGINE,
        help="Room for keys and values of all requests: 512M or 2G (bytes), 32768t (tokens). "
        "Default: 512M, or one full context if that is more.",
    ),
]  # fmt: skip
KvTypeOption = Annotated[
    Literal["f16", "int8"],
    typer.Option(
        "--kv-type", metavar="f16|int8", rich_help_panel=_ENGINE,
        help="How keys and values are kept: int8 holds nearly twice as many tokens in the same memory and changes "
        "answers slightly (docs/performance.md has the numbers).",
    ),
]  # fmt: skip

TemperatureOption = Annotated[
    float,
    typer.Option(
        "--temperature", "-T", metavar="X", min=0.0, help="0 takes the best token.", rich_help_panel=_SAMPLING
    ),
]
TopKOption = Annotated[int, typer.Option(metavar="N", min=0, help="0 is off.", rich_help_panel=_SAMPLING)]
TopPOption = Annotated[float, typer.Option(metavar="P", min=0.0, max=1.0, help="1 is off.", rich_help_panel=_SAMPLING)]
MinPOption = Annotated[float, typer.Option(metavar="P", min=0.0, max=1.0, help="0 is off.", rich_help_panel=_SAMPLING)]
RepetitionOption = Annotated[
    float, typer.Option("--repetition-penalty", metavar="X", min=0.01, help="1 is off.", rich_help_panel=_SAMPLING)
]
SeedOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="The same seed gives the same answer.", rich_help_panel=_SAMPLING),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", "-n", metavar="N", min=1, help="Longest answer; if not given, what the context leaves.",
        rich_help_panel=_SAMPLING,
    ),
]  # fmt: skip
StopOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End the answer before this text; may be repeated.", rich_help_panel=_SAMPLING),
]

ToolFormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", parser=parse_tool_format, rich_help_panel=_FORMATS,
        help="How the model writes tool calls (hermes, llama3, …); what its chat template teaches if not given.",
    ),
]  # fmt: skip
ReasoningFormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", parser=parse_reasoning_format, rich_help_panel=_FORMATS,
        help="How the model marks its reasoning (think, harmony, none, …); as its chat template does if not given.",
    ),
]  # fmt: skip
RefusalsOption = Annotated[
    Literal["on", "off"],
    typer.Option(
        metavar="on|off", rich_help_panel=_FORMATS,
        help="Also report an answer that begins as a refusal in `refusal`; the text itself stays.",
    ),
]  # fmt: skip
PoolingOption = Annotated[
    Literal["mean", "cls", "last"] | None,
    typer.Option(
        metavar="mean|cls|last", rich_help_panel=_FORMATS,
        help="How embeddings are made of hidden states; what the model file says if not given, else mean.",
    ),
]  # fmt: skip
