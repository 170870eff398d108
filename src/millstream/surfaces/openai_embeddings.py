"""OpenAI embeddings: texts or token ids in, one unit vector each out."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec

from millstream.ir.errors import invalid
from millstream.ir.provider import Embeddings
from millstream.ir.request import EmbeddingRequest
from millstream.surfaces.openai_fields import EMBEDDING_FIELDS
from millstream.surfaces.openai_labels import one_of
from millstream.surfaces.openai_params import decode_body, require_model
from millstream.surfaces.openai_prompts import read_prompts
from millstream.surfaces.service import QueueBody, service

NAME = "embeddings"
MAX_INPUTS = 2048

ENCODING_FORMATS = ("float", "base64")


class EmbeddingBody(QueueBody, frozen=True, kw_only=True):
    input: str | list[Any] | None = None
    model: str | None = None
    encoding_format: str | None = None
    dimensions: int | None = None


class EmbeddingCall(msgspec.Struct, frozen=True):
    """A decoded body: what is asked, and how the vectors are to be written."""

    request: EmbeddingRequest
    encoding: str


def decode(body: bytes) -> EmbeddingCall:
    """Read a request.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    wire = decode_body(body, EmbeddingBody, EMBEDDING_FIELDS)
    inputs = read_prompts("input", wire.input, may_be_empty=False, most=MAX_INPUTS)
    if wire.dimensions is not None and wire.dimensions < 1:
        raise invalid(f"dimensions must be at least 1, got {wire.dimensions}.", param="dimensions")
    request = EmbeddingRequest(
        model=require_model(wire.model),
        inputs=inputs,
        dimensions=wire.dimensions,
        service=service(wire),
    )
    return EmbeddingCall(request, one_of("encoding_format", wire.encoding_format, ENCODING_FORMATS) or "float")


def encode(answer: Embeddings, call: EmbeddingCall) -> dict[str, object]:
    """The body of the answer."""
    write = _base64 if call.encoding == "base64" else _floats
    data = [
        {"object": "embedding", "index": index, "embedding": write(vector)}
        for index, vector in enumerate(answer.vectors)
    ]
    usage = {"prompt_tokens": answer.prompt_tokens, "total_tokens": answer.prompt_tokens}
    return {"object": "list", "data": data, "model": call.request.model, "usage": usage}


def _floats(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def _base64(vector: bytes) -> str:
    return base64.b64encode(vector).decode("ascii")
