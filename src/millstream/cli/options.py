"""Command-line options that several commands share, and the values they take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from millstream.cli.names import model_names
from millstream.cli.sampling import within_api
from millstream.engine.config import Activations, KvType

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
    kv_type: KvType = "f16"
    activations: Activations = "int12"
    max_sequences: int | None = None
    max_queue: int | None = None
    prefix_cache: bool = True
    step_deadline: float | None = None


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about clients, in seconds. ``request_timeout``: for requests that name none;
    ``stall_timeout``: for clients that stop reading. ``keys_file``: where their keys are; None: in the usual place.
    ``api_key``: digest of a key besides those."""

    request_timeout: float | None = None
    stall_timeout: float = 300.0
    keys_file: Path | None = None
    api_key: str | None = None


DEFAULT_JOURNAL_BYTES = 1 << 30


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests are recorded, and how many bytes all files may have together."""

    folder: Path
    limit: int


class TelemetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about logs and traces. ``log_level``: how much goes to stderr, in which
    ``log_format``; ``log_prompts``: with what requests ask and are answered. ``otlp_endpoint``: where traces go."""

    log_level: str = "warning"
    log_format: Literal["text", "json"] = "text"
    log_prompts: bool = False
    otlp_endpoint: str | None = None


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
    elif (size := _bytes(text)) > 0:
        return KvCache(bytes=size)
    raise typer.BadParameter(f"{text!r} is not a size; write 512M or 2G for bytes, 32768t for tokens")


def parse_size(text: str) -> int:
    """Bytes: ``512M``, ``2GiB`` (binary units)."""
    size = _bytes(text.strip())
    if size <= 0:
        raise typer.BadParameter(f"{text!r} is not a size; write 512M or 2G")
    return size


def is_number(value: float | None) -> float | None:
    """A callback for options with a range: ``nan`` is in none, but compares as if it were in all."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0


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

ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help=MODEL_HELP, autocompletion=model_names)
]
ModelArgument = Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=model_names)]
ModelsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL...", help=f"{MODEL_HELP} The first is the default model.", autocompletion=model_names
    ),
]
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
        "--ctx", metavar="N", min=1, rich_help_panel=_ENGINE,
        help="Most tokens of prompt and answer together; the model's if not given, and never more than that.",
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
    KvType,
    typer.Option(
        "--kv-type", metavar="f16|int8", rich_help_panel=_ENGINE,
        help="How keys and values are kept: int8 holds nearly twice as many tokens in the same memory and changes "
        "answers slightly (docs/performance.md has the numbers).",
    ),
]  # fmt: skip
ActivationsOption = Annotated[
    Activations,
    typer.Option(
        "--activations", metavar="int12|int8", rich_help_panel=_ENGINE,
        help="Integers that weights are multiplied by: int8 is faster and makes the model less exact "
        "(docs/performance.md has the numbers).",
    ),
]  # fmt: skip


def _sampling(field: str, help: str, *flags: str, metavar: str = "X") -> Any:  # Typer's own `Option` is typed so
    return typer.Option(*flags, metavar=metavar, help=help, callback=within_api(field), rich_help_panel=_SAMPLING)


TemperatureOption = Annotated[float, _sampling("temperature", "0 to 2; 0 takes the best token.", "--temperature", "-T")]
TopKOption = Annotated[int, _sampling("top_k", "0 is off.", metavar="N")]
TopPOption = Annotated[float, _sampling("top_p", "Above 0, up to 1, which is off.", metavar="P")]
MinPOption = Annotated[float, _sampling("min_p", "0 to 1; 0 is off.", metavar="P")]
RepetitionOption = Annotated[float, _sampling("repetition_penalty", "Above 0, up to 10; 1 is off.")]
PresenceOption = Annotated[float, _sampling("presence_penalty", "-2 to 2; 0 is off.")]
FrequencyOption = Annotated[float, _sampling("frequency_penalty", "-2 to 2; 0 is off.")]
SeedOption = Annotated[int | None, _sampling("seed", "The same seed gives the same answer.", metavar="N")]
MaxTokensOption = Annotated[
    int | None,
    _sampling(
        "max_tokens", "Longest answer; if not given, what the context leaves.", "--max-tokens", "-n", metavar="N"
    ),
]
StopOption = Annotated[
    list[str] | None, _sampling("stop", "End the answer before this text; may be repeated.", metavar="TEXT")
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
