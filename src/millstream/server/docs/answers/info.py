"""What the routes about texts and about the server answer, as structures of which schemas are made."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from millstream.admin.views import KeyUsage, ModelView, RequestView


class Tokens(Struct):
    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizedText(Struct):
    """The text under both of the names that clients look for."""

    prompt: str
    content: str


class RenderedPrompt(Struct):
    prompt: str


class Model(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int
    max_model_len: int


class ModelList(Struct):
    object: Literal["list"]
    data: list[Model]


class ModelViews(Struct):
    data: list[ModelView]


class EngineHealth(Struct):
    """`reason`: why it is not ready. Counts are there if the engine told them; `waits` says by its reason how many
    sequences wait."""

    status: Literal["ready", "loading", "draining", "restarting", "silent", "stuck", "lost", "unloading", "no_model"]
    model: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    running: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    waits: dict[str, int] | UnsetType = UNSET
    kv_blocks_used: int | UnsetType = UNSET
    kv_blocks_total: int | UnsetType = UNSET
    steps: int | UnsetType = UNSET
    restarts: int | UnsetType = UNSET


class Health(EngineHealth, kw_only=True):
    """The status is the default model's engine's, the counts are those of all engines together.
    Who needs a key and has none is told status and reason only."""

    models: list[str] | UnsetType = UNSET
    engines: list[EngineHealth] | UnsetType = UNSET


class KeyUsages(Struct):
    data: list[KeyUsage]


class RequestList(Struct):
    """The open requests, oldest first."""

    data: list[RequestView]


class FrontPage(Struct):
    name: Literal["millstream"]
    version: str
    paths: dict[str, str]
