"""What the routes about texts and about the server answer, as structures of which schemas are made."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


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


class Health(Struct):
    status: Literal["ok"]
    models: list[str]
    running: int
    waiting: int
    wait_reason: str | None
    kv_blocks_used: int
    kv_blocks_total: int
    steps: int


class Unhealthy(Struct):
    """`open`: requests that are still answered while the server drains. Counts are there if the engine told them."""

    status: Literal["unavailable", "draining"]
    reason: str | UnsetType = UNSET
    open: int | UnsetType = UNSET
    models: list[str] | UnsetType = UNSET
    running: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    wait_reason: str | UnsetType | None = UNSET
    kv_blocks_used: int | UnsetType = UNSET
    kv_blocks_total: int | UnsetType = UNSET
    steps: int | UnsetType = UNSET


class FrontPage(Struct):
    name: Literal["millstream"]
    version: str
    paths: dict[str, str]
