"""`truncation: auto`: what is left out, and that no more is than must be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.ir.errors import ApiError, context_length_exceeded
from millstream.ir.provider import DeltaStream
from millstream.ir.request import ChatRequest, Message, Request, ToolCall
from millstream.pipeline.local import LocalProvider
from millstream.server.truncation import shorter, stream_truncated
from support.provider import ScriptedProvider
from support.scripted_model import TinyTemplate, TinyTokenizer, engine, run

SYSTEM = Message("system", "s")


class Small(ScriptedProvider):
    """A model whose context holds ``room`` messages."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.open = 0

    async def stream(self, request: Request) -> DeltaStream:
        assert isinstance(request, ChatRequest)
        if len(request.messages) > self.room:
            raise context_length_exceeded(len(request.messages), self.room)
        return await super().stream(request)


def users(*texts: str) -> list[Message]:
    return [message for text in texts for message in (Message("user", text), Message("assistant", text))]


async def fitted(messages: list[Message], room: int) -> tuple[Message, ...]:
    provider = Small(room)
    stream = await stream_truncated(provider, ChatRequest(model="tiny", messages=tuple(messages)))
    await stream.aclose()
    request = provider.requests[-1]
    assert isinstance(request, ChatRequest)
    return request.messages


async def test_what_fits_is_whole() -> None:
    conversation = [SYSTEM, *users("a", "b"), Message("user", "c")]
    assert await fitted(conversation, 6) == tuple(conversation)


async def test_oldest_turns_go_first_and_system_stays() -> None:
    conversation = [SYSTEM, *users("a", "b"), Message("user", "c")]
    assert await fitted(conversation, 5) == (SYSTEM, *users("b"), Message("user", "c"))
    assert await fitted(conversation, 3) == (SYSTEM, Message("user", "c"))


class Template(TinyTemplate):
    """Counts what it renders."""

    def __init__(self) -> None:
        self.rendered = 0

    def render(self, messages: Sequence[Message], **how: Any) -> str:
        self.rendered += 1
        return super().render(messages, **how)


@settings(max_examples=settings.default.max_examples // 2)  # each takes a tenth of a second
@given(st.integers(0, 2**32), st.integers(1, 1000), st.sampled_from([3, 40, 400]), st.sampled_from([300, 4096]))
def test_the_smallest_cut_is_found_in_a_few_tries(seed: int, turns: int, longest: int, context: int) -> None:
    chance = random.Random(seed)
    messages = [SYSTEM]
    for _ in range(turns):
        # Characters of one byte each and of three, so that characters tell little of tokens.
        letter = chance.choice("xyz東")
        messages += [Message("user", letter * chance.randrange(longest)), Message("assistant", "ok")]
    messages.append(Message("user", "q"))
    template = Template()
    playing = engine([97], context_length=context)
    provider = LocalProvider(playing, tokenizer=TinyTokenizer(), template=template, reasoning_format="none")
    template.rendered = 0
    run(run(stream_truncated(provider, ChatRequest(model="tiny", messages=tuple(messages)))).aclose())
    assert template.rendered <= 12

    (request,) = playing.requests
    kept = bytes(token for token in request.prompt if token < 256).decode()

    def size(cut: Sequence[Message]) -> int:
        return len(TinyTokenizer().encode(TinyTemplate().render(cut)))

    cuts = [tuple(messages), *shorter(messages)]
    best = next(cut for cut in cuts if size(cut) < context) if turns < 30 else None
    if best is not None:
        assert len(request.prompt) == size(best)
    assert kept.endswith("user:qassistant:")
    assert len(request.prompt) < context


async def test_what_cannot_fit_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        await fitted([SYSTEM, *users("a"), Message("user", "b")], 1)
    assert caught.value.code == "context_length_exceeded"


async def test_other_refusals_are_not_tried_again() -> None:
    provider = Small(9)
    provider.refuse = ApiError("full", status=429)
    with pytest.raises(ApiError, match="full"):
        await stream_truncated(provider, ChatRequest(model="tiny", messages=tuple(users("a", "b"))))
    assert len(provider.requests) == 1


def test_results_go_with_their_call() -> None:
    call = Message("assistant", tool_calls=(ToolCall("c", "f", "{}"),))
    result = Message("tool", "r", tool_call_id="c")
    question = Message("user", "q")
    cuts = list(shorter([question, call, result, call, result]))
    assert cuts == [(question, call, result)]


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=12))
def test_cuts_only_ever_shrink(roles: list[str]) -> None:
    messages = [Message(role, str(at)) for at, role in enumerate(roles)]  # type: ignore[arg-type]
    cuts = [tuple(messages), *shorter(messages)]
    for longer, cut in pairwise(cuts):
        assert set(cut) < set(longer)
        assert [message for message in longer if message in cut] == list(cut)
    kept = set(cuts[-1])
    assert {message for message in messages if message.role == "system"} <= kept
    asked = [message for message in messages if message.role == "user"]
    assert set(asked[-1:]) <= kept


def test_cuts_of_a_very_long_conversation_are_made_one_by_one() -> None:
    cuts = shorter(users("a") * 50_000)
    assert len(cuts[-1]) < len(cuts[0]) < 100_000
