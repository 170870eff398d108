"""What the OpenAI routes but Responses answer, as structures: nothing encodes them, schemas are made of them and real
answers are held against those."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class PromptTokensDetails(Struct):
    cached_tokens: int


class CompletionTokensDetails(Struct):
    reasoning_tokens: int


class CompletionUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    content: list[TokenLogprob]
    refusal: None


class CalledFunction(Struct):
    name: str
    arguments: str


class ChatToolCall(Struct):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Struct):
    """`content` is null where there are calls and no text."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET


class ChatChoice(Struct):
    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    service_tier: Literal["default"] | UnsetType = UNSET


class StoredChatCompletion(ChatCompletion, kw_only=True):
    """A completion with what was asked for beside its messages."""

    service_tier: Literal["default"]
    request_id: str | None
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    tools: list[dict[str, Any]] | None
    tool_choice: str | dict[str, Any] | None
    response_format: dict[str, Any] | None
    metadata: dict[str, str]


class ChatCompletionList(Struct):
    object: Literal["list"]
    data: list[StoredChatCompletion]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ChatCompletionDeleted(Struct):
    id: str
    object: Literal["chat.completion.deleted"]
    deleted: Literal[True]


class TextPart(Struct):
    type: str
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class StoredMessage(Struct):
    """A message of the request. `content` is the text of `content_parts`."""

    id: str
    role: str
    name: str | None
    content: str | None
    content_parts: list[TextPart] | None
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class StoredMessageList(Struct):
    object: Literal["list"]
    data: list[StoredMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FunctionFragment(Struct):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCallFragment(Struct):
    """The first of a call has its id, type and name; each has the next part of the arguments."""

    index: int
    function: FunctionFragment
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(Struct):
    """What the chunk adds. The first of a choice has the role, the last is empty."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallFragment] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class ChatChunkChoice(Struct):
    """`finish_reason` is null but in the last chunk of the choice."""

    index: int
    delta: ChatDelta
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(Struct):
    """`usage` comes if `stream_options` ask for it: at the end in a chunk without choices, or in every chunk."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: CompletionUsage | UnsetType = UNSET
    service_tier: Literal["default"] | UnsetType = UNSET


class CompletionLogprobs(Struct):
    """Parallel lists; null where there is none, as for the first token of an echoed prompt."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Struct):
    index: int
    text: str
    finish_reason: Literal["stop", "length", "content_filter"]
    logprobs: CompletionLogprobs | None
    token_ids: list[int] | UnsetType = UNSET


class Completion(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class CompletionChunkChoice(Struct):
    index: int
    text: str
    finish_reason: Literal["stop", "length", "content_filter"] | None
    logprobs: CompletionLogprobs | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class CompletionChunk(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: CompletionUsage | UnsetType = UNSET


class Embedding(Struct):
    """`embedding` is text where base64 was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Struct):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class OpenAIErrorBody(Struct):
    """`param` is the path of the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct):
    error: OpenAIErrorBody
