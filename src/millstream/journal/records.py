"""What is recorded of a request: enough to run it again and to know whether the same comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from millstream.engine.config import Activations, KvType
from millstream.engine.protocol import TokenFinish, TokenRequest

S = TypeVar("S", bound=msgspec.Struct)

UnixTime = Annotated[float, msgspec.Meta(ge=0, lt=253_402_214_400)]
"""Before the year 10000, which no calendar function takes."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The file that was served. ``file``: where it was; ``size``: bytes; ``sha256``: of all of it, in hex; empty if it
    could not be read."""

    name: str
    file: str
    size: int
    sha256: str


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that answered. ``kv_type`` and ``activations`` change its numbers; nothing else of it changes a token,
    and is here to explain one that differs all the same."""

    version: str
    isa: str
    threads: int
    context_length: int
    kv_tokens: int
    prefix_cache: bool = True
    kv_type: KvType = "f16"
    activations: Activations = "int12"


class Sequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice. ``request``: the `TokenRequest` by field names, without those at their default (`restored` reads it);
    ``tokens``: what came; ``finish`` None: the reader left or a stop string ended it, and more would have come.
    ``embedding``: SHA-256 of a pooled vector, in hex."""

    request: dict[str, Any]
    tokens: list[int] = []
    finish: TokenFinish | None = None
    error: str | None = None
    embedding: str | None = None

    def __post_init__(self) -> None:
        # What is read without `restored`, by whoever only lists records.
        if not isinstance(self.request.get("prompt"), list | tuple):
            raise ValueError("the prompt of a sequence is no list")
        if not isinstance(self.choice, int):
            raise ValueError("the choice of a sequence is no number")

    @property
    def choice(self) -> int:
        """Its number among those of its request."""
        number: int = self.request.get("choice", 0)
        return number

    @property
    def prompt_length(self) -> int:
        """Tokens of its prompt."""
        return len(self.request["prompt"])


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One HTTP request and its answer.

    ``time``: Unix seconds when it came; ``seconds``: until it was done. ``body``: as it was sent, None if it is no
    UTF-8 or longer than `millstream.journal.recording.MAX_BODY`; ``body_bytes``: its length. ``whole``: the answer was
    sent to its end. ``status`` 0: nothing was sent. ``model`` and ``engine`` None: the request did not get so far.
    """

    id: str
    time: UnixTime
    seconds: float
    surface: str
    path: str
    status: int
    whole: bool
    body: str | None
    body_bytes: int
    model: ModelFacts | None = None
    engine: EngineFacts | None = None
    sequences: list[Sequence] = []

    def __post_init__(self) -> None:
        if self.sequences and (self.model is None or self.engine is None):
            raise ValueError("sequences without the model and the engine that they are of")


def named(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct by the names of its fields, without those at their default.

    Messages between processes are arrays, which is too fragile for files: fields may move.
    """
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if value != default:
            found[field.name] = named(value) if isinstance(value, msgspec.Struct) else value
    return found


def restored(kind: type[S], data: Mapping[str, Any]) -> S:
    """The struct that `named` took apart.

    Raises:
        ValueError: the data have a field that this version does not know, or a value of the wrong type.
    """
    hints = get_type_hints(kind)
    unknown = sorted(data.keys() - hints.keys())
    if unknown:
        raise ValueError(f"recorded by another version: unknown field {unknown[0]!r} of {kind.__name__}")
    try:
        return kind(**{name: _value(hints[name], value) for name, value in data.items()})
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None


def _value(kind: Any, value: Any) -> Any:
    structs = [each for each in (kind, *getattr(kind, "__args__", ())) if isinstance(each, type)]
    own = next((each for each in structs if issubclass(each, msgspec.Struct)), None)
    if own is not None and isinstance(value, dict):
        return restored(own, value)
    return msgspec.convert(value, kind, strict=False)  # JSON has no integers for keys


def token_request(sequence: Sequence) -> TokenRequest:
    """What the engine was asked. Raises `ValueError`: this version does not understand it."""
    return restored(TokenRequest, sequence.request)
