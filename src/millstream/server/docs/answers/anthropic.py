"""What Anthropic's routes answer, as structures of which schemas are made."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class OutputTokensDetails(Struct):
    thinking_tokens: int


class MessageUsage(Struct):
    """`input_tokens` leaves out what came from the prefix cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class TextBlock(Struct, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class StopDetails(Struct, tag_field="type", tag="refusal"):
    category: None
    explanation: None


class Message(Struct, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason
    stop_sequence: str | None
    usage: MessageUsage
    stop_details: StopDetails | UnsetType = UNSET


class OpenedMessage(Struct, tag_field="type", tag="message"):
    """A message of which only the prompt is known."""

    id: str
    role: Literal["assistant"]
    model: str
    content: list[Any]
    stop_reason: None
    stop_sequence: None
    usage: MessageUsage


class MessageStart(Struct, tag_field="type", tag="message_start"):
    message: OpenedMessage


class Ping(Struct, tag_field="type", tag="ping"):
    pass


class ContentBlockStart(Struct, tag_field="type", tag="content_block_start"):
    """The block is empty as yet."""

    index: int
    content_block: TextBlock | ThinkingBlock | ToolUseBlock


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(Struct, tag_field="type", tag="signature_delta"):
    signature: str


class InputJsonDelta(Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class ContentBlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class ContentBlockStop(Struct, tag_field="type", tag="content_block_stop"):
    index: int


class Stop(Struct):
    stop_reason: StopReason
    stop_sequence: str | None
    stop_details: StopDetails | UnsetType = UNSET


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    delta: Stop
    usage: MessageUsage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    pass


class AnthropicErrorBody(Struct):
    type: str
    message: str
    details: dict[str, Any] | UnsetType = UNSET


class AnthropicError(Struct, tag_field="type", tag="error"):
    error: AnthropicErrorBody
    request_id: str | None


MessageEvent = (
    MessageStart
    | Ping
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | AnthropicError
)


class TokenCount(Struct):
    input_tokens: int


class AnthropicModel(Struct, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str
    lifecycle: str
    max_input_tokens: int
    max_tokens: int


class AnthropicModelList(Struct):
    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None
