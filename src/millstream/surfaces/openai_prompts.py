"""The four forms of raw prompts, which completions and embeddings share: a string, strings, ids, lists of ids."""

from __future__ import annotations

from typing import Any

from millstream.ir.errors import invalid, missing
from millstream.surfaces.openai_params import token_ids

Prompt = str | tuple[int, ...]


def read_prompts(
    name: str, wire: str | list[Any] | None, *, may_be_empty: bool, most: int | None = None
) -> tuple[Prompt, ...]:
    """The prompts of field ``name``, at most ``most``. ``may_be_empty``: a prompt may be an empty string or an empty
    list of token ids; an empty list as the whole field holds no prompt.

    Raises:
        ApiError: 400 with the path of what is at fault.
    """
    if wire is None:
        raise missing(name)
    if wire == []:
        raise invalid(f"{name} must not be an empty array.", param=name)
    if isinstance(wire, str) or not isinstance(wire[0], str | list):
        return (_prompt(wire, type(wire), name, may_be_empty=may_be_empty),)
    if most is not None and len(wire) > most:
        raise invalid(f"{name}: at most {most} entries are allowed, got {len(wire)}.", param=name)
    kind = type(wire[0])
    return tuple(
        _prompt(item, kind, f"{name}[{position}]", may_be_empty=may_be_empty) for position, item in enumerate(wire)
    )


def _prompt(item: Any, kind: type[Any], path: str, *, may_be_empty: bool) -> Prompt:
    if not isinstance(item, kind):
        expected = "a string" if kind is str else "an array of token ids"
        raise invalid(f"{path}: expected {expected}, as the first entry is one.", param=path)
    if not item and not may_be_empty:
        raise invalid(f"{path} must not be empty.", param=path)
    if isinstance(item, str):
        return item
    for position, token in enumerate(item):
        if not isinstance(token, int) or isinstance(token, bool):
            raise invalid(f"{path}[{position}]: expected a token id.", param=f"{path}[{position}]")
    return token_ids(path, item)
