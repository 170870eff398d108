"""An OpenAPI 3.1 document of an app, made from what the app runs on: its routes, the field tables that requests are
held against, and the structures that they are read into. What is documented is what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute, Route

from millstream.server.admin.fields import PRIORITY_FIELDS, PriorityBody
from millstream.server.admin.wire import SURFACES as WIRE_NAMES
from millstream.server.docs.answers import ANSWERS, ERRORS, Answer, errors_of
from millstream.server.models import MODEL_FIELDS, ModelBody
from millstream.server.models import PATH as MODELS
from millstream.server.pages import DEFAULT, MOST
from millstream.server.paths import is_open
from millstream.surfaces import texts
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.anthropic_request import MessagesBody
from millstream.surfaces.fields import Field, FieldTable
from millstream.surfaces.openai_chat_request import ChatBody
from millstream.surfaces.openai_chat_stored import UPDATE_FIELDS, UpdateBody
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
    "/v1/chat/completions/{id}": Body(UPDATE_FIELDS, UpdateBody),
    "/v1/completions": Body(COMPLETION_FIELDS, CompletionBody),
    "/v1/embeddings": Body(EMBEDDING_FIELDS, EmbeddingBody),
    "/v1/responses": Body(RESPONSES_FIELDS, ResponsesBody),
    "/v1/messages": Body(MESSAGES_FIELDS, MessagesBody),
    "/v1/messages/count_tokens": Body(MESSAGES_FIELDS, MessagesBody, optional=("max_tokens",)),
    "/tokenize": Body(texts.TOKENIZE_FIELDS, texts.TokenizeBody),
    "/detokenize": Body(texts.DETOKENIZE_FIELDS, texts.DetokenizeBody),
    "/v1/admin/requests/{id}/priority": Body(PRIORITY_FIELDS, PriorityBody),
    "/apply-template": Body(texts.TEMPLATE_FIELDS, texts.ConversationBody),
    **{f"{MODELS}/{verb}": Body(MODEL_FIELDS, ModelBody) for verb in ("load", "unload", "pull", "pull/cancel")},
}

_ID = {"schema": {"type": "string"}, "in": "query"}
_PAGE = (
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT}},
    {"name": "after", **_ID, "description": "The id of the last item of the page before."},
    {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"]}},
)
QUERIES: dict[tuple[str, str], Sequence[dict[str, Any]]] = {
    ("GET", "/v1/chat/completions"): (
        *_PAGE,
        {"name": "model", **_ID},
        {
            "name": "metadata",
            "in": "query",
            "style": "deepObject",
            "explode": True,
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    ),
    ("GET", "/v1/chat/completions/{id}/messages"): _PAGE,
    ("GET", "/v1/responses/{id}/input_items"): _PAGE,
    ("GET", "/v1/events"): (
        {"name": "interval", "in": "query", "schema": {"type": "number", "minimum": 0.2, "maximum": 60, "default": 1}},
        {"name": "once", "in": "query", "schema": {"type": "boolean"}, "description": "One snapshot as JSON."},
    ),
    ("GET", "/v1/admin/requests/{id}/wire"): (
        {"name": "surface", "in": "query", "schema": {"enum": sorted(WIRE_NAMES), "default": "chat"}},
    ),
    ("GET", "/v1/admin/logs"): (
        {"name": "level", "in": "query", "schema": {"enum": ["debug", "info", "warning", "error"]}},
        {"name": "lines", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 2000, "default": 200}},
    ),
}
"""Parameters in the query, by method and path."""

SUMMARIES = {
    ("POST", "/v1/chat/completions"): "OpenAI chat completions",
    ("GET", "/v1/chat/completions"): "Stored completions, page by page",
    ("GET", "/v1/chat/completions/{id}"): "A stored completion",
    ("POST", "/v1/chat/completions/{id}"): "Give a stored completion other metadata",
    ("DELETE", "/v1/chat/completions/{id}"): "Forget a stored completion",
    ("GET", "/v1/chat/completions/{id}/messages"): "The messages that a stored completion answers",
    ("POST", "/v1/completions"): "OpenAI completions: raw text or token ids continued",
    ("POST", "/v1/embeddings"): "OpenAI embeddings: a unit vector for each text",
    ("POST", "/v1/responses"): "OpenAI Responses",
    ("GET", "/v1/responses/{id}"): "A stored response",
    ("DELETE", "/v1/responses/{id}"): "Forget a stored response",
    ("GET", "/v1/responses/{id}/input_items"): "What a stored response was an answer to",
    ("POST", "/v1/responses/{id}/cancel"): "Refused: there are no background responses",
    ("POST", "/v1/responses/compact"): "Refused with a 404: conversations are not compacted",
    ("POST", "/v1/responses/input_tokens"): "Refused with a 404: use /tokenize",
    ("POST", "/v1/messages"): "Anthropic Messages",
    ("POST", "/v1/messages/count_tokens"): "Tokens that a Messages request would have, without generating",
    ("POST", "/tokenize"): "Text or a conversation as token ids",
    ("POST", "/detokenize"): "Token ids as text",
    ("POST", "/apply-template"): "A conversation as the model reads it",
    ("GET", "/v1/models"): "Models that are served",
    ("GET", "/v1/models/{model}"): "One model",
    ("GET", MODELS): "Models that are served, are here or can be fetched, for the operator",
    ("POST", f"{MODELS}/load"): "Begin to load a model that is here",
    ("POST", f"{MODELS}/unload"): "Begin to end a model: after its open requests, or its loading",
    ("POST", f"{MODELS}/pull"): "Begin to fetch a model of the catalogue",
    ("POST", f"{MODELS}/pull/cancel"): "Stop a fetch",
    ("GET", "/health"): "200 while the server lives; the body tells what it is doing",
    ("GET", "/ready"): "200 if the server can answer requests now, else 503 with the reason",
    ("GET", "/metrics"): "Prometheus metrics",
    ("GET", "/v1/admin/keys"): "What each API key has used, and what is left of its limits",
    ("GET", "/"): "What this server is; for a browser the web page",
    ("GET", "/assets/{file}"): "A file of the web page",
    ("GET", "/v1/events"): "What the server does, once in a while; for its operator, as all that follows",
    ("GET", "/v1/admin/requests"): "The requests that are being answered",
    ("GET", "/v1/admin/requests/{id}"): "One of them, or of the last that ended, with its timeline",
    ("GET", "/v1/admin/requests/{id}/wire"): "What an open request is answered, as another surface would write it",
    ("POST", "/v1/admin/requests/{id}/cancel"): "End a request; its client is told",
    ("POST", "/v1/admin/requests/{id}/pause"): "Have a request rest until it is resumed",
    ("POST", "/v1/admin/requests/{id}/resume"): "Have a paused request go on",
    ("POST", "/v1/admin/requests/{id}/priority"): "Serve a request in another class",
    ("GET", "/v1/admin/logs"): "The last log lines, and those that follow",
    ("GET", "/openapi.json"): "This document",
    ("GET", "/docs"): "This document as a page",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
_KEYS: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}, {}]
"""One of them, or none where the operator has made no keys."""

_REF = "#/components/schemas/"


def openapi_document(routes: Iterable[BaseRoute], *, version: str) -> dict[str, Any]:
    """The document of these routes; every one of them is in it."""
    requests, answers, schemas = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                paths.setdefault(path, {})[method.lower()] = _operation(method, path, requests, answers)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": version,
            "description": "Each field is honoured, refused by name with a 400, or ignored as described "
            "(`x-millstream-status`). Fields that are not listed are refused. null is the same as absent.",
        },
        "paths": paths,
        "security": _KEYS,
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
    }


def _schemas() -> tuple[dict[type, dict[str, Any]], dict[Any, dict[str, Any]], dict[str, Any]]:
    """Schemas of the members of each request's structure, of each type of an answer, and of what those refer to."""
    kinds = dict.fromkeys(body.kind for body in BODIES.values())
    members = [(kind, member) for kind in kinds for member in msgspec.structs.fields(kind)]
    types = list(dict.fromkeys([*ERRORS, *(each for answer in ANSWERS.values() for each in answer.types)]))
    found, schemas = msgspec.json.schema_components(
        [*(member.type for _, member in members), *types], ref_template=_REF + "{name}"
    )
    requests: dict[type, dict[str, Any]] = {}
    for (kind, member), schema in zip(members, found, strict=False):
        requests.setdefault(kind, {})[member.encode_name] = schema
    return requests, dict(zip(types, found[len(members) :], strict=True)), schemas


def _operation(
    method: str, path: str, requests: Mapping[type, dict[str, Any]], answers: Mapping[Any, dict[str, Any]]
) -> dict[str, Any]:
    body = BODIES.get(path) if method == "POST" else None
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path).rstrip('_')}",
        "summary": SUMMARIES.get((method, path), path),
        "responses": _responses(ANSWERS.get((method, path)), path, answers),
    }
    names = re.findall(r"\{(\w+)\}", path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    if parameters := [*parameters, *QUERIES.get((method, path), ())]:
        operation["parameters"] = parameters
    if is_open(path):
        operation["security"] = []
    if body is not None:
        schema = _body_schema(body, requests[body.kind])
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _responses(answer: Answer | None, path: str, answers: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """What an operation answers, by status."""

    def one_of(types: Sequence[Any]) -> dict[str, Any]:
        schemas = [answers[each] for each in types]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    failure = {"description": "A failure", "content": {"application/json": {"schema": one_of(errors_of(path))}}}
    if answer is None:
        return {"default": failure}
    content: dict[str, Any] = {}
    if answer.bodies or answer.kind != "application/json":
        content[answer.kind] = {"schema": one_of(answer.bodies)} if answer.bodies else {}
    if answer.events:
        # OpenAPI knows the items of a stream from 3.2 on, as `itemSchema`.
        content["text/event-stream"] = {
            "schema": {"type": "string", "description": answer.stream},
            "x-millstream-event": one_of(answer.events),
        }
    others = {
        status: {"description": "Not ready", "content": {"application/json": {"schema": answers[body]}}}
        for status, body in answer.failures.items()
    }
    done = {"description": "The answer", "content": content} if content else {"description": "Done"}
    return {answer.status if content else "204": done, **others, "default": failure}


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
