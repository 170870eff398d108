"""Stored chat completions: what is kept of an answer, and how lists of them ask and answer.

The object and its lists are those of OpenAI's ``GET /v1/chat/completions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from millstream.ir.errors import ApiError, invalid, missing
from millstream.ir.fold import Answer
from millstream.surfaces.fields import Field, field_table
from millstream.surfaces.openai_chat import answer_body
from millstream.surfaces.openai_chat_request import ChatOptions
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.openai_labels import TIER, check_metadata
from millstream.surfaces.openai_params import decode_body
from millstream.surfaces.wire import request_id

Item = dict[str, Any]

UPDATE_FIELDS = field_table(
    (Field("metadata", "honoured", "Required: takes the place of what there was; null for none."),)
)


class UpdateBody(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET


def stored_body(answer: Answer, options: ChatOptions, *, completion_id: str, created: int) -> bytes:
    """The object that is kept: the answer as it was sent, what was asked for beside the messages, and the metadata."""
    body = answer_body(answer, options, response_id=completion_id, created=created)
    asked = {"request_id": request_id.get(), "service_tier": TIER, **options.asked}
    return to_json({**body, **asked, "metadata": options.metadata})


def stored_messages(options: ChatOptions, completion_id: str) -> tuple[Item, ...]:
    """The messages of the request with ids. ``content`` is what the model read of ``content_parts``."""
    return tuple({"id": f"{completion_id}-{place}", **message} for place, message in enumerate(options.messages))


def decode_update(body: bytes) -> dict[str, str]:
    """The new metadata of a stored completion.

    Raises:
        ApiError: 400 that names the field at fault.
    """
    wire = decode_body(body, UpdateBody, UPDATE_FIELDS)
    if isinstance(wire.metadata, msgspec.UnsetType):
        raise missing("metadata")
    return check_metadata(wire.metadata or {})


def metadata_filter(query: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The pairs that a list asks for by ``metadata[key]=value``.

    Raises:
        ApiError: 400 if there are more than an object can have, or they are longer.
    """
    begin, end = "metadata[", "]"
    wanted = {
        name[len(begin) : -len(end)]: value for name, value in query if name.startswith(begin) and name.endswith(end)
    }
    if any(name == "metadata" for name, _ in query):
        raise invalid("metadata: filter by metadata[key]=value.", param="metadata")
    return check_metadata(wanted)


def deleted_body(completion_id: str) -> bytes:
    """What the deletion of a completion answers."""
    return to_json({"id": completion_id, "object": "chat.completion.deleted", "deleted": True})


def completion_not_found(completion_id: str) -> ApiError:
    """A 404 in OpenAI's words."""
    return ApiError(f"Chat completion {completion_id[:128]!r} not found.", param="id", code="not_found", status=404)
