"""Sampling options on the command line are checked by the rules of the API, so both take the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from millstream.ir.request import Sampling

T = TypeVar("T")


def sampling_of(**fields: Any) -> Sampling:
    """Sampling from fields as a chat completion names them; None is absent.

    Raises:
        ApiError: one is out of its range; the message names it.
        msgspec.ValidationError: one has the wrong type.
    """
    import msgspec

    from millstream.surfaces.openai_params import SharedBody, sampling
    from millstream.surfaces.wire import Limits

    body = msgspec.convert(fields, SharedBody)
    return sampling(body, Limits(), max_tokens=body.max_tokens)


def within_api(field: str) -> Callable[[T], T]:
    """A callback for the option of this field that refuses what the API refuses."""

    def check(value: T) -> T:
        from millstream.ir.errors import ApiError

        try:
            sampling_of(**{field: None if value == [] else value})
        except ApiError as error:
            raise typer.BadParameter(error.message.removeprefix(field).lstrip(": ")) from None
        return value

    return check
