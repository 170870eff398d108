"""An OpenAPI 3.1 document of an app, made from what the app runs on: its routes, the field tables that requests are
held against, and the structures that they are read into. What is documented is what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute, Route

from millstream.surfaces import texts
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.anthropic_request import MessagesBody
from millstream.surfaces.fields import Field, FieldTable
from millstream.surfaces.openai_chat_request import ChatBody
from millstream.surfaces.openai_completions import CompletionBody
from millstream.surfaces.openai_embeddings import EmbeddingBody
from millstream.surfaces.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS
from millstream.surfaces.responses.fields import RESPONSES_FIELDS
from millstream.surfaces.responses.request import ResponsesBody


class Body(msgspec.Struct, frozen=True):
    """What a route reads: the fields it knows, and the structure of the honoured ones. ``optional``: fields that this
    route does not require, whatever the table says."""

    table: FieldTable
    kind: type[msgspec.Struct]
    optional: tuple[str, ...] = ()


BODIES = {
    "/v1/chat/completions": Body(CHAT_FIELDS, ChatBody),
    "/v1/completions": Body(COMPLETION_FIELDS, CompletionBody),
    "/v1/embeddings": Body(EMBEDDING_FIELDS, EmbeddingBody),
    "/v1/responses": Body(RESPONSES_FIELDS, ResponsesBody),
    "/v1/messages": Body(MESSAGES_FIELDS, MessagesBody),
    "/v1/messages/count_tokens": Body(MESSAGES_FIELDS, MessagesBody, optional=("max_tokens",)),
    "/tokenize": Body(texts.TOKENIZE_FIELDS, texts.TokenizeBody),
    "/detokenize": Body(texts.DETOKENIZE_FIELDS, texts.DetokenizeBody),
    "/apply-template": Body(texts.TEMPLATE_FIELDS, texts.ConversationBody),
}

SUMMARIES = {
    ("POST", "/v1/chat/completions"): "OpenAI chat completions",
    ("POST", "/v1/completions"): "OpenAI completions: raw text or token ids continued",
    ("POST", "/v1/embeddings"): "OpenAI embeddings: a unit vector for each text",
    ("POST", "/v1/responses"): "OpenAI Responses",
    ("GET", "/v1/responses/{id}"): "A stored response",
    ("DELETE", "/v1/responses/{id}"): "Forget a stored response",
    ("GET", "/v1/responses/{id}/input_items"): "What a stored response was an answer to",
    ("POST", "/v1/responses/{id}/cancel"): "Refused: there are no background responses",
    ("POST", "/v1/responses/compact"): "Refused: not supported",
    ("POST", "/v1/responses/input_tokens"): "Refused: not supported",
    ("POST", "/v1/messages"): "Anthropic Messages",
    ("POST", "/v1/messages/count_tokens"): "Tokens that a Messages request would have, without generating",
    ("POST", "/tokenize"): "Text or a conversation as token ids",
    ("POST", "/detokenize"): "Token ids as text",
    ("POST", "/apply-template"): "A conversation as the model reads it",
    ("GET", "/v1/models"): "Models that are served",
    ("GET", "/v1/models/{model}"): "One model",
    ("GET", "/health"): "200 while the server lives; the body tells what it is doing",
    ("GET", "/ready"): "200 if the server can answer requests now, else 503 with the reason",
    ("GET", "/metrics"): "Prometheus metrics",
    ("GET", "/"): "What this server is",
    ("GET", "/openapi.json"): "This document",
    ("GET", "/docs"): "This document as a page",
}
_KINDS = {"/metrics": "text/plain", "/docs": "text/html"}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_ANTHROPIC_ERROR = {
    "type": "object",
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            "required": ["type", "message"],
        },
    },
    "required": ["type", "error"],
}
_REF = "#/components/schemas/"


def openapi_document(routes: Iterable[BaseRoute], *, version: str) -> dict[str, Any]:
    """The document of these routes; every one of them is in it."""
    structures, schemas = _structures(dict.fromkeys(body.kind for body in BODIES.values()))
    schemas |= {"Error": _ERROR, "AnthropicError": _ANTHROPIC_ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                paths.setdefault(path, {})[method.lower()] = _operation(method, path, structures)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": version,
            "description": "Each field is honoured, refused by name with a 400, or ignored as described "
            "(`x-millstream-status`). Fields that are not listed are refused. null is the same as absent.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _structures(kinds: Iterable[type[msgspec.Struct]]) -> tuple[dict[type, dict[str, Any]], dict[str, Any]]:
    """Schemas of the members of each structure, and of the structures that those refer to."""
    members = [(kind, member) for kind in kinds for member in msgspec.structs.fields(kind)]
    found, schemas = msgspec.json.schema_components(
        [member.type for _, member in members], ref_template=_REF + "{name}"
    )
    structures: dict[type, dict[str, Any]] = {}
    for (kind, member), schema in zip(members, found, strict=True):
        structures.setdefault(kind, {})[member.encode_name] = schema
    return structures, schemas


def _operation(method: str, path: str, structures: Mapping[type, dict[str, Any]]) -> dict[str, Any]:
    body = BODIES.get(path) if method == "POST" else None
    kinds = [_KINDS.get(path, "application/json")]
    if body is not None and "stream" in body.table and not path.endswith("/count_tokens"):
        kinds.append("text/event-stream")
    error = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path).rstrip('_')}",
        "summary": SUMMARIES.get((method, path), path),
        "responses": {
            "200": {"description": "The answer", "content": {kind: {} for kind in kinds}},
            "default": {
                "description": "A failure",
                "content": {"application/json": {"schema": {"$ref": _REF + error}}},
            },
        },
    }
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if body is not None:
        schema = _body_schema(body, structures[body.kind])
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _body_schema(body: Body, known: Mapping[str, Any]) -> dict[str, Any]:
    fields: Sequence[Field] = tuple(body.table.values())
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _property(field, known.get(field.name, {})) for field in fields},
        "additionalProperties": False,
    }
    required = [
        field.name
        for field in fields
        if field.status == "honoured" and field.note.startswith("Required") and field.name not in body.optional
    ]
    return {**schema, "required": required} if required else schema


def _property(field: Field, known: Mapping[str, Any]) -> dict[str, Any]:
    """One field: the type it is read as, what the table says of it, and its status."""
    about = {"description": field.note, "x-millstream-status": field.status}
    if field.status == "refused":
        return {"enum": [*field.neutral, None], **about}
    if field.status == "ignored":
        return about
    return {**known, **about}
