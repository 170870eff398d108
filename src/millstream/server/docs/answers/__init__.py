"""Which route answers with what: bodies of whole answers, data of streamed events, envelopes of failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from millstream.admin.views import ModelView
from millstream.server.docs.answers import anthropic, info, openai, responses


class Answer(msgspec.Struct, frozen=True):
    """``bodies``: types of the whole answer, one of which it has. ``events``: those of the data of streamed events;
    ``stream`` says how a stream goes on and ends. ``kind``: the media type of an answer that is no JSON. ``failures``:
    types of the bodies of statuses that have another envelope than the path's others. ``status``: of the answer."""

    bodies: tuple[Any, ...] = ()
    events: tuple[Any, ...] = ()
    stream: str = ""
    kind: str = "application/json"
    failures: Mapping[str, Any] = {}
    status: str = "200"

    @property
    def types(self) -> tuple[Any, ...]:
        """All that it needs schemas of."""
        return (*self.bodies, *self.events, *self.failures.values())


_DONE = (
    "Frames of one `data:` line each; comments fill silences. A failure in mid-stream is one frame with an error. The "
    "last frame is `data: [DONE]`, also then."
)
_RESPONSES = (
    "Frames of an `event:` line, which is the `type` of the data, and a `data:` line. The last is one of "
    "`response.completed`, `response.incomplete` and `response.failed`."
)
_MESSAGES = (
    "Frames of an `event:` line, which is the `type` of the data, and a `data:` line. The last is `message_stop`, or "
    "an `error`."
)
_HEALTH = {"503": info.Health}
_BEGUN = Answer((ModelView,), status="202")

ANSWERS: dict[tuple[str, str], Answer] = {
    ("POST", "/v1/chat/completions"): Answer(
        (openai.ChatCompletion,), (openai.ChatCompletionChunk, openai.Error), _DONE
    ),
    ("GET", "/v1/chat/completions"): Answer((openai.ChatCompletionList,)),
    ("GET", "/v1/chat/completions/{id}"): Answer((openai.StoredChatCompletion,)),
    ("POST", "/v1/chat/completions/{id}"): Answer((openai.StoredChatCompletion,)),
    ("DELETE", "/v1/chat/completions/{id}"): Answer((openai.ChatCompletionDeleted,)),
    ("GET", "/v1/chat/completions/{id}/messages"): Answer((openai.StoredMessageList,)),
    ("POST", "/v1/completions"): Answer((openai.Completion,), (openai.CompletionChunk, openai.Error), _DONE),
    ("POST", "/v1/embeddings"): Answer((openai.EmbeddingList,)),
    ("POST", "/v1/responses"): Answer((responses.Response,), (responses.ResponseStreamEvent,), _RESPONSES),
    ("GET", "/v1/responses/{id}"): Answer((responses.Response,)),
    ("DELETE", "/v1/responses/{id}"): Answer((responses.ResponseDeleted,)),
    ("GET", "/v1/responses/{id}/input_items"): Answer((responses.InputItemList,)),
    ("POST", "/v1/messages"): Answer((anthropic.Message,), (anthropic.MessageEvent,), _MESSAGES),
    ("POST", "/v1/messages/count_tokens"): Answer((anthropic.TokenCount,)),
    ("POST", "/tokenize"): Answer((info.Tokens,)),
    ("POST", "/detokenize"): Answer((info.DetokenizedText,)),
    ("POST", "/apply-template"): Answer((info.RenderedPrompt,)),
    ("GET", "/v1/models"): Answer((info.ModelList, anthropic.AnthropicModelList)),
    ("GET", "/v1/models/{model}"): Answer((info.Model, anthropic.AnthropicModel)),
    ("GET", "/v1/admin/models"): Answer((info.ModelViews,)),
    **{("POST", f"/v1/admin/models/{verb}"): _BEGUN for verb in ("load", "unload", "pull", "pull/cancel")},
    ("GET", "/health"): Answer((info.Health,), failures=_HEALTH),
    ("GET", "/ready"): Answer((info.Health,), failures=_HEALTH),
    ("GET", "/metrics"): Answer(kind="text/plain"),
    ("GET", "/v1/admin/keys"): Answer((info.KeyUsages,)),
    ("GET", "/"): Answer((info.FrontPage,)),
    ("GET", "/assets/{file}"): Answer(kind="*/*"),
    ("GET", "/openapi.json"): Answer((dict[str, Any],)),
    ("GET", "/docs"): Answer(kind="text/html"),
}
"""By method and path. A route that is not here never answers with success."""


ERRORS = (openai.Error, anthropic.AnthropicError)


def errors_of(path: str) -> tuple[Any, ...]:
    """The envelopes that a path's failures may have."""
    if path.startswith("/v1/messages"):
        return (anthropic.AnthropicError,)
    return ERRORS if path.startswith("/v1/models") else (openai.Error,)
