"""Bodies of `/tokenize`, `/detokenize` and `/apply-template`, as vLLM and llama.cpp spell them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ChatRequest
from millstream.surfaces import openai_chat
from millstream.surfaces.fields import FieldTable, field_table, honoured, refused
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.openai_params import decode_body, token_ids
from millstream.surfaces.wire import Call, Limits

ANY_MODEL = "-"
"""Stands for the provider's first model, as these requests need not name one."""


_MODEL = honoured("model", "Default: the first of `/v1/models`.")
_CONVERSATION = (
    honoured("messages", "As in chat completions."),
    honoured("tools", "As in chat completions."),
    honoured("chat_template_kwargs", "As in chat completions."),
    refused("add_generation_prompt", "the assistant's turn is always opened.", True),
    refused("continue_final_message", "the assistant's turn is always a new one.", False),
)

TOKENIZE_FIELDS = field_table(
    (
        _MODEL,
        honoured("prompt", "The text; or `messages`, which are counted as the real request is."),
        honoured("content", "llama.cpp's name for `prompt`."),
        honoured("add_special_tokens", "With BOS, if the model begins texts with one; default true."),
        honoured("add_special", "llama.cpp's name for it; default false when `content` is used."),
        *_CONVERSATION,
        refused("parse_special", "markers in the text are always read as control tokens.", True),
        refused("with_pieces", "ids only; use `/detokenize`.", False),
        refused("return_token_strs", "ids only; use `/detokenize`.", False),
    )
)
DETOKENIZE_FIELDS = field_table((_MODEL, honoured("tokens", "Required: a list of token ids.")))
TEMPLATE_FIELDS = field_table((_MODEL, *_CONVERSATION))


class ConversationBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    chat_template_kwargs: msgspec.Raw = msgspec.Raw()


class TokenizeBody(ConversationBody, frozen=True, kw_only=True):
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    tokens: list[int] | None = None


class TokenizeAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be tokenised: a text, or a conversation."""

    model: str | None
    text: str = ""
    add_special: bool = True
    conversation: ChatRequest | None = None


class DetokenizeAsk(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that are to become text."""

    model: str | None
    tokens: tuple[int, ...]


def decode_tokenize(body: bytes, limits: Limits) -> TokenizeAsk:
    """Raises `ApiError` (400) that names the field at fault."""
    wire = decode_body(body, TokenizeBody, TOKENIZE_FIELDS)
    if _given(wire.messages):
        return TokenizeAsk(model=wire.model, conversation=_conversation(wire, limits))
    text = wire.content if wire.prompt is None else wire.prompt
    if text is None:
        raise invalid(
            "prompt (or content, or messages) is required.", param="prompt", code="missing_required_parameter"
        )
    special = wire.add_special if wire.add_special_tokens is None else wire.add_special_tokens
    if special is None:
        special = wire.prompt is not None
    return TokenizeAsk(model=wire.model, text=text, add_special=special)


def decode_detokenize(body: bytes) -> DetokenizeAsk:
    """Raises `ApiError` (400) that names the field at fault."""
    wire = decode_body(body, DetokenizeBody, DETOKENIZE_FIELDS)
    if wire.tokens is None:
        raise missing("tokens")
    return DetokenizeAsk(model=wire.model, tokens=token_ids("tokens", wire.tokens))


def decode_template(body: bytes, limits: Limits) -> ChatRequest:
    """Raises `ApiError` (400) that names the field at fault."""
    return _conversation(decode_body(body, ConversationBody, TEMPLATE_FIELDS), limits)


def named(request: ChatRequest, first_model: str) -> ChatRequest:
    """The request with a model, if it names none."""
    return msgspec.structs.replace(request, model=first_model) if request.model == ANY_MODEL else request


def chat_of(call: Call) -> ChatRequest:
    """The chat request of a call whose surface makes no others."""
    assert isinstance(call.request, ChatRequest)
    return call.request


def _conversation(wire: ConversationBody, limits: Limits) -> ChatRequest:
    """Read by the chat surface, so that the prompt is the one of the real request."""
    fields = {
        "messages": wire.messages,
        "tools": wire.tools,
        "chat_template_kwargs": wire.chat_template_kwargs,
    }
    given = {name: value for name, value in fields.items() if _given(value)}
    return chat_of(openai_chat.decode(to_json({"model": wire.model or ANY_MODEL, **given}), limits))


def _given(value: msgspec.Raw) -> bool:
    return bytes(value) not in (b"", b"null")


TABLES: Mapping[str, FieldTable] = {
    "tokenize-fields": TOKENIZE_FIELDS,
    "detokenize-fields": DETOKENIZE_FIELDS,
    "apply-template-fields": TEMPLATE_FIELDS,
}
