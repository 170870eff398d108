"""Command-line options that several commands share, and the values they take."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import typer

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_TOKENS = re.compile(r"(\d+)\s*(?:t|tok|tokens)", re.IGNORECASE)


class KvCache(msgspec.Struct, frozen=True):
    """Size of the KV cache: exactly one of ``bytes`` and ``tokens`` is set."""

    bytes: int | None = None
    tokens: int | None = None


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the engine; None and 0 leave the choice to it."""

    threads: int = 0
    context_length: int | None = None
    kv_cache: KvCache | None = None
    max_sequences: int | None = None
    max_queue: int | None = None
    prefix_cache: bool = True


def parse_kv_cache(text: str) -> KvCache:
    """``512M``, ``2GiB`` (binary units) or ``32768t`` / ``32768 tokens``."""
    text = text.strip()
    if match := _TOKENS.fullmatch(text):
        tokens = int(match[1])
        if tokens > 0:
            return KvCache(tokens=tokens)
    elif match := _SIZE.fullmatch(text):
        size = int(float(match[1]) * _UNITS[match[2].upper()])
        if 0 < size < 1 << 60:
            return KvCache(bytes=size)
    raise typer.BadParameter(f"{text!r} is not a size; write 512M or 2G for bytes, 32768t for tokens")


_ENGINE = "Engine"
_SAMPLING = "Sampling"

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="A .gguf file or a name that `list` shows [default: SmolLM2]."),
]
NoFetchOption = Annotated[bool, typer.Option("--no-fetch", help="Fail instead of fetching a model that is not here.")]
ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads", "-t", min=0, max=1024, rich_help_panel=_ENGINE, help="Worker threads; 0 means all cores."
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--ctx", "--context-length", min=1, metavar="TOKENS", rich_help_panel=_ENGINE,
        help="Longest prompt and answer together [default: what the model was made for].",
    ),
]  # fmt: skip
KvCacheOption = Annotated[
    KvCache | None,
    typer.Option(
        "--kv-cache", metavar="SIZE", parser=parse_kv_cache, rich_help_panel=_ENGINE,
        help="Memory for keys and values of all requests: 512M, 2G, or 32768t for tokens "
        "[default: 512M, or one full context if that is more].",
    ),
]  # fmt: skip

TemperatureOption = Annotated[
    float,
    typer.Option("--temperature", "-T", min=0.0, rich_help_panel=_SAMPLING, help="0 always takes the best token."),
]
TopKOption = Annotated[int, typer.Option("--top-k", min=0, rich_help_panel=_SAMPLING, help="0 is off.")]
TopPOption = Annotated[float, typer.Option("--top-p", min=0.0, max=1.0, rich_help_panel=_SAMPLING, help="1 is off.")]
MinPOption = Annotated[float, typer.Option("--min-p", min=0.0, max=1.0, rich_help_panel=_SAMPLING, help="0 is off.")]
RepetitionOption = Annotated[
    float, typer.Option("--repetition-penalty", min=0.01, rich_help_panel=_SAMPLING, help="1 is off.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**63 - 1, rich_help_panel=_SAMPLING, help="The same seed, the same answer."),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", min=1, rich_help_panel=_SAMPLING, help="End the answer here at the latest."),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", rich_help_panel=_SAMPLING, help="End the answer before this text; may be given again."),
]
SystemOption = Annotated[str | None, typer.Option("--system", "-s", help="Instructions before the conversation.")]
StatsOption = Annotated[bool, typer.Option("--stats", help="Print token counts and speed to stderr at the end.")]
