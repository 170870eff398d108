"""What the Responses routes answer, as structures of which schemas are made."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from millstream.server.docs.answers.openai import TokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class InputTokensDetails(Struct):
    cached_tokens: int
    cache_write_tokens: int


class ResponseTokensDetails(Struct):
    reasoning_tokens: int


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: ResponseTokensDetails
    total_tokens: int


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    refusal: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    text: str


class OutputMessage(Struct, tag_field="type", tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText | RefusalPart]


class ReasoningItem(Struct, tag_field="type", tag="reasoning"):
    """`encrypted_content` comes if `include` asks for it."""

    id: str
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: str | UnsetType | None = UNSET


class FunctionCall(Struct, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET


class CustomToolCall(Struct, tag_field="type", tag="custom_tool_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: str | UnsetType = UNSET


OutputItem = OutputMessage | ReasoningItem | FunctionCall | CustomToolCall


class ResponseError(Struct):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(Struct):
    reason: Literal["max_output_tokens", "content_filter"]


class ReasoningEcho(Struct):
    effort: str | None
    summary: str | None


class Response(Struct):
    """`store` of a finished response tells whether it was kept. From `instructions` on it repeats the request."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    service_tier: Literal["default"]
    store: bool
    usage: ResponseUsage | None
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    max_output_tokens: int | None
    max_tool_calls: int | None
    previous_response_id: str | None
    reasoning: ReasoningEcho
    text: dict[str, Any]
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    prompt_cache_key: Any
    safety_identifier: Any
    user: Any


class ResponseDeleted(Struct):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(Struct):
    """Items have a `type`, an `id` and what is of their type; text is a list of parts."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Event(Struct, tag_field="type"):
    """Numbered from 0 over the whole stream."""

    sequence_number: int


class ResponseEvent(Event):
    response: Response


class ResponseCreated(ResponseEvent, tag="response.created"):
    pass


class ResponseInProgress(ResponseEvent, tag="response.in_progress"):
    pass


class ResponseCompleted(ResponseEvent, tag="response.completed"):
    pass


class ResponseIncomplete(ResponseEvent, tag="response.incomplete"):
    pass


class ResponseFailed(ResponseEvent, tag="response.failed"):
    pass


class ItemEvent(Event):
    output_index: int
    item: OutputItem


class OutputItemAdded(ItemEvent, tag="response.output_item.added"):
    pass


class OutputItemDone(ItemEvent, tag="response.output_item.done"):
    pass


class OfItem(Event):
    """`output_index` is the place of the item in the final `output`."""

    item_id: str
    output_index: int


class PartEvent(OfItem):
    content_index: int
    part: OutputText | RefusalPart | ReasoningText


class ContentPartAdded(PartEvent, tag="response.content_part.added"):
    pass


class ContentPartDone(PartEvent, tag="response.content_part.done"):
    pass


class OutputTextDelta(OfItem, tag="response.output_text.delta"):
    content_index: int
    delta: str
    logprobs: list[TokenLogprob]


class OutputTextDone(OfItem, tag="response.output_text.done"):
    content_index: int
    text: str
    logprobs: list[TokenLogprob]


class RefusalDelta(OfItem, tag="response.refusal.delta"):
    content_index: int
    delta: str


class RefusalDone(OfItem, tag="response.refusal.done"):
    content_index: int
    refusal: str


class ReasoningTextDelta(OfItem, tag="response.reasoning_text.delta"):
    content_index: int
    delta: str


class ReasoningTextDone(OfItem, tag="response.reasoning_text.done"):
    content_index: int
    text: str


class SummaryPartAdded(OfItem, tag="response.reasoning_summary_part.added"):
    summary_index: int
    part: SummaryText


class SummaryPartDone(OfItem, tag="response.reasoning_summary_part.done"):
    summary_index: int
    part: SummaryText


class SummaryTextDelta(OfItem, tag="response.reasoning_summary_text.delta"):
    summary_index: int
    delta: str


class SummaryTextDone(OfItem, tag="response.reasoning_summary_text.done"):
    summary_index: int
    text: str


class FunctionCallArgumentsDelta(OfItem, tag="response.function_call_arguments.delta"):
    delta: str


class FunctionCallArgumentsDone(OfItem, tag="response.function_call_arguments.done"):
    arguments: str


class CustomToolCallInputDelta(OfItem, tag="response.custom_tool_call_input.delta"):
    delta: str


class CustomToolCallInputDone(OfItem, tag="response.custom_tool_call_input.done"):
    input: str


ResponseStreamEvent = (
    ResponseCreated
    | ResponseInProgress
    | OutputItemAdded
    | ContentPartAdded
    | OutputTextDelta
    | OutputTextDone
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | SummaryPartAdded
    | SummaryTextDelta
    | SummaryTextDone
    | SummaryPartDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
    | ContentPartDone
    | OutputItemDone
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
)
