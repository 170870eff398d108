"""Decoding that the OpenAI surfaces share: JSON with exact complaints, sampling, stream options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from millstream.ir.errors import ApiError, invalid, missing
from millstream.ir.request import Sampling
from millstream.surfaces.fields import FieldTable, check_fields
from millstream.surfaces.service import ServiceBody
from millstream.surfaces.wire import Limits

MAX_INT32 = 2**31 - 1
MODEL_NAME_LENGTH = 512
SEED_RANGE = (-(2**63), 2**63 - 1)

FIELD_BYTES = {
    "chat_template_kwargs": 256 * 1024,
    "logit_bias": 2 * 1024 * 1024,
    "metadata": 128 * 1024,
    "stop_token_ids": 256 * 1024,
    "tokens": 8 * 1024 * 1024,
}
"""Fields whose values become many small objects are measured before they are read: to make a million objects stalls
the whole process."""

T = TypeVar("T")


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class SharedBody(ServiceBody, frozen=True, kw_only=True):
    """The fields that chat and completions have in common, as they are on the wire: null is absent."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None


def decode_body(body: bytes, kind: type[T], table: FieldTable) -> T:
    """Parse a JSON object, hold its fields against the table, and read the honoured ones.

    Raises:
        ApiError: 400 for bad UTF-8, bad JSON, nesting without end, an unknown or refused field, or a wrong type.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        message = f"The request body is not valid UTF-8: byte {error.start} cannot be decoded."
        raise invalid(message, code="invalid_json") from None
    fields = read_json(body, dict[str, msgspec.Raw])
    check_fields(fields, table)
    _check_sizes(fields)
    return read_json(body, kind)


def read_json(body: bytes, kind: type[T]) -> T:
    """A body of UTF-8 as a value of a type.

    Raises:
        ApiError: 400 for bad JSON, nesting without end, a wrong type or a number that nothing can hold.
    """
    if not body.strip():
        raise invalid("The request body is empty. Send a JSON object.", code="invalid_json")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise wrong_type(error) from None
    except msgspec.DecodeError as error:
        raise invalid(f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    except RecursionError:
        raise invalid("The request body is nested too deeply.", code="invalid_json") from None


def _check_sizes(fields: Mapping[str, msgspec.Raw]) -> None:
    for name, limit in FIELD_BYTES.items():
        if name in fields and (size := memoryview(fields[name]).nbytes) > limit:
            raise invalid(f"{name}: at most {limit} bytes of JSON are allowed, got {size}.", param=name)


_TYPE_ERROR = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_KINDS = re.compile(r"`(?P<kinds>[a-z]+(?: \| [a-z]+)*)`")
_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""Of what msgspec calls as Python does; for the others it has JSON's words."""


def wrong_type(error: msgspec.ValidationError) -> ApiError:
    """A 400 that names the field by path: ``messages[2].role: expected string, got integer``."""
    match = _TYPE_ERROR.match(str(error))
    what, path = (match["what"], (match["path"] or "").lstrip(".")) if match else (str(error), "")
    absent = _MISSING.match(what)
    if absent:
        return missing(f"{path}.{absent['name']}" if path else absent["name"])
    unknown = _UNKNOWN.match(what)
    if unknown:
        param = f"{path}.{unknown['name'][:64]}"
        return invalid(f"Unrecognized request argument supplied: {param!r}.", param=param, code="unknown_parameter")
    what = _KINDS.sub(_in_json_words, what).replace("`", "")
    what = what[:1].lower() + what[1:]
    return invalid(f"{path}: {what}." if path else f"The request body is wrong: {what}.", param=path or None)


def _in_json_words(match: re.Match[str]) -> str:
    """Kinds of values as the writer of a body calls them. That a field may be null as well goes without saying."""
    kinds = match["kinds"].split(" | ")
    shown = [_JSON_WORDS.get(kind, kind) for kind in kinds if kind != "null" or len(kinds) == 1]
    return " | ".join(shown)


def require_model(model: str | None) -> str:
    """The model's name, or a 400."""
    if not model:
        raise invalid("You must name a model.", param="model", code="missing_required_parameter")
    if len(model) > MODEL_NAME_LENGTH:
        raise invalid(f"model: a name has at most {MODEL_NAME_LENGTH} characters.", param="model")
    return model


def choice_count(n: int | None, limits: Limits) -> int:
    """``n`` within the operator's bound."""
    return _ranged("n", 1 if n is None else n, 1, limits.choices)


def stream_flags(body: SharedBody) -> tuple[bool, bool, bool]:
    """(stream, include usage, running usage)."""
    stream = bool(body.stream)
    if body.stream_options is None:
        return stream, False, False
    if not stream:
        raise invalid("stream_options is only allowed when stream is true.", param="stream_options")
    return stream, bool(body.stream_options.include_usage), bool(body.stream_options.continuous_usage_stats)


def sampling(
    body: SharedBody, limits: Limits, *, max_tokens: int | None, max_name: str = "max_tokens", least_tokens: int = 1
) -> Sampling:
    """Ranges checked, neutral where the caller said nothing.

    Raises:
        ApiError: 400 that names the field, its range and the value.
    """
    if max_tokens is not None:
        _ranged(max_name, max_tokens, least_tokens, MAX_INT32)
    min_tokens = _ranged("min_tokens", body.min_tokens or 0, 0, MAX_INT32)
    if max_tokens is not None and min_tokens > max_tokens:
        raise invalid(f"min_tokens ({min_tokens}) must not be above {max_name} ({max_tokens}).", param="min_tokens")
    return Sampling(
        temperature=_or(1.0, body.temperature, "temperature", 0, 2),
        top_k=max(0, _ranged("top_k", body.top_k or 0, -1, MAX_INT32)),
        top_p=_above_zero("top_p", body.top_p, 1),
        min_p=_or(0.0, body.min_p, "min_p", 0, 1),
        repetition_penalty=_above_zero("repetition_penalty", body.repetition_penalty, 10),
        presence_penalty=_or(0.0, body.presence_penalty, "presence_penalty", -2, 2),
        frequency_penalty=_or(0.0, body.frequency_penalty, "frequency_penalty", -2, 2),
        logit_bias=_logit_bias(body.logit_bias or {}),
        seed=None if body.seed is None else _ranged("seed", body.seed, *SEED_RANGE),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop=stop_strings("stop", body.stop, limits),
        stop_token_ids=_stop_token_ids(body.stop_token_ids or [], limits),
    )


def stop_strings(name: str, wire: str | list[str] | None, limits: Limits) -> tuple[str, ...]:
    """The stop strings of a request, within the operator's bounds: matching them takes memory for each character."""
    stops = () if wire is None else (wire,) if isinstance(wire, str) else tuple(wire)
    if len(stops) > limits.stop_strings:
        raise invalid(f"{name}: at most {limits.stop_strings} strings are allowed, got {len(stops)}.", param=name)
    if "" in stops:
        raise invalid(f"{name}: strings must not be empty.", param=name)
    if (length := sum(map(len, stops))) > limits.stop_characters:
        raise invalid(
            f"{name}: at most {limits.stop_characters} characters are allowed in all, got {length}.", param=name
        )
    return stops


def _stop_token_ids(ids: list[int], limits: Limits) -> tuple[int, ...]:
    check_count("stop_token_ids", len(ids), limits.stop_token_ids)
    return token_ids("stop_token_ids", ids)


def check_count(name: str, count: int, limit: int) -> None:
    """Refuse a list that is longer than ``limit``."""
    if count > limit:
        raise invalid(f"{name}: at most {limit} are allowed, got {count}.", param=name)


def token_ids(name: str, ids: Iterable[int]) -> tuple[int, ...]:
    """Ids that can be ids; whether the vocabulary has them, the provider knows."""
    result = tuple(ids)
    for position, token in enumerate(result):
        if not 0 <= token <= MAX_INT32:
            raise invalid(f"{name}[{position}] must be a token id, got {_shown(token)}.", param=f"{name}[{position}]")
    return result


def check_depth(name: str, value: Any, limit: int, *, code: str | None = None) -> None:
    """Refuse values nested deeper than ``limit``, with this code."""
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            item
            for node in level
            if isinstance(node, (dict, list))
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise invalid(f"{name} is nested too deeply (limit {limit}).", param=name, code=code)


N = TypeVar("N", int, float)


def _ranged(name: str, value: N, low: int, high: int) -> N:
    if not low <= value <= high:
        raise invalid(f"{name} must be between {low} and {high}, got {_shown(value)}.", param=name)
    return value


def _or(default: float, value: float | None, name: str, low: int, high: int) -> float:
    return default if value is None else _ranged(name, value, low, high)


def _above_zero(name: str, value: float | None, high: int) -> float:
    if value is None:
        return 1.0
    if not 0 < value <= high:
        raise invalid(f"{name} must be above 0 and at most {high}, got {_shown(value)}.", param=name)
    return value


def _logit_bias(wire: dict[str, float]) -> dict[int, float]:
    bias = {}
    for key, value in wire.items():
        # isdecimal alone would let other scripts' digits pass.
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= MAX_INT32):
            raise invalid(f"logit_bias: keys must be token ids, got {key[:32]!r}.", param="logit_bias")
        if not -100 <= value <= 100:
            raise invalid(
                f"logit_bias[{key!r}] must be between -100 and 100, got {_shown(value)}.", param=f"logit_bias.{key}"
            )
        bias[int(key)] = value
    return bias


def _shown(value: float) -> str:
    # Converting a very long integer to text is quadratic, and Python refuses it altogether.
    return f"{value}" if isinstance(value, float) or abs(value) < 10**20 else "a much larger number"
