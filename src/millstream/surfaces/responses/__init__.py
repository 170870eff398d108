"""OpenAI Responses: a stream of deltas as the ladder of `response.…` events, or as one `response` object.

The package is a surface. A server that stores answers uses `parse` and `build` instead of `decode`, and drives a
`ResponsesEncoder` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millstream.ir.deltas import Content, Delta, Finish, Reasoning, Refusal, ToolCallArgs, ToolCallStart
from millstream.ir.errors import ApiError, invalid
from millstream.ir.fold import Answer, Text, Thinking
from millstream.surfaces.openai_common import encode_error, to_json
from millstream.surfaces.responses.options import ResponsesOptions
from millstream.surfaces.responses.request import ParsedRequest, build, parse
from millstream.surfaces.responses.stream import ResponsesEncoder
from millstream.surfaces.wire import Call, Limits, WireOptions

__all__ = [
    "FIELD_NAMES",
    "NAME",
    "ParsedRequest",
    "ResponsesEncoder",
    "ResponsesOptions",
    "build",
    "decode",
    "encode_answer",
    "encode_error",
    "parse",
    "previous_response_not_found",
    "stream_encoder",
]

NAME = "responses"
FIELD_NAMES: Mapping[str, str] = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
}


def decode(body: bytes, limits: Limits = Limits()) -> Call:  # noqa: B008  (immutable)
    """Read a request that needs nothing stored.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    parsed = parse(body, limits)
    if parsed.previous_response_id is not None:
        raise previous_response_not_found(parsed.previous_response_id)
    return build(parsed, limits)


def previous_response_not_found(response_id: str) -> ApiError:
    """A 400 in OpenAI's words."""
    return invalid(
        f"Previous response with id {response_id[:128]!r} not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def stream_encoder(
    options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> ResponsesEncoder:
    """The encoder of one stream; ``response_id`` and ``created`` are minted unless given."""
    return ResponsesEncoder(options, response_id=response_id, created=created)


def encode_answer(
    answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> bytes:
    """The body of a folded answer. A fold does not tell which log probabilities belong to which text: they are given
    only if the answer is nothing but text."""
    encoder = ResponsesEncoder(options, response_id=response_id, created=created, write=False)
    for delta in _deltas(answer):
        encoder.encode(delta)
    encoder.end()
    return to_json(encoder.response())


def _deltas(answer: Answer) -> Iterator[Delta]:
    """A stream that folds to the answer."""
    choice = answer.choices[0]
    only_text = len(choice.blocks) == 1 and isinstance(choice.blocks[0], Text)
    calls = 0
    for block in choice.blocks:
        if isinstance(block, Text):
            yield Content(block.text, logprobs=choice.logprobs if only_text else ())
        elif isinstance(block, Thinking):
            yield Reasoning(block.text)
        else:
            yield ToolCallStart(calls, block.id, block.name)
            yield ToolCallArgs(calls, block.arguments)
            calls += 1
    if choice.refusal is not None:
        yield Refusal(choice.refusal)
    yield answer.error or Finish(choice.finish_reason or "stop", answer.usage)
