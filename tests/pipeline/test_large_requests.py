"""Requests that are large on purpose: what is refused before work is done, and where the work is done."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.ir.errors import ApiError, ContextLengthExceeded
from millstream.ir.request import ChatRequest, CompletionRequest, Message, Request, Sampling, Tool, ToolCall
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.bounds import LONGEST_TEXT
from millstream.pipeline.local import LONG_CONVERSATION, LONG_LIST, LONG_TEXT, LocalProvider
from support.scripted_model import EOS, VOCAB_SIZE, TinyTemplate, TinyTokenizer, ask, engine, run

CONTEXT = 128
HUGE = "a" * 8_100_000


class Places:
    """Names of the threads that did something."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def note(self) -> None:
        self.seen.append(threading.current_thread().name.partition("_")[0])


class WatchedTokenizer(TinyTokenizer):
    def __init__(self) -> None:
        super().__init__()
        self.encoding, self.reading = Places(), Places()

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        self.encoding.note()
        return super().encode(text, add_bos=add_bos, parse_special=parse_special)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == EOS:
            self.reading.note()
        return super().token_bytes(token_id)


class WatchedTemplate(TinyTemplate):
    def __init__(self) -> None:
        self.rendering = Places()

    def render(self, messages: Sequence[Message], **how: Any) -> str:
        self.rendering.note()
        return super().render(messages, **how)


class Watched(LocalProvider):
    def __init__(self) -> None:
        self.tokenizer, self.template = WatchedTokenizer(), WatchedTemplate()
        scripted = engine([97], context_length=CONTEXT)
        super().__init__(scripted, tokenizer=self.tokenizer, template=self.template, reasoning_format="none")
        for places in (self.tokenizer.encoding, self.tokenizer.reading, self.template.rendering):
            places.seen.clear()  # what building the provider reads

    def refusal(self, request: Request) -> ApiError:
        with pytest.raises(ApiError) as caught:
            run(self.stream(request))
        assert caught.value.status == 400
        return caught.value


def text_of(characters: int) -> CompletionRequest:
    return CompletionRequest(model="tiny", prompts=("a" * characters,))


def test_short_requests_change_no_thread() -> None:
    provider = Watched()
    run(provider.prompt_tokens(ask("hi")))
    assert provider.template.rendering.seen == ["MainThread"]
    assert provider.tokenizer.encoding.seen == ["MainThread"]


def test_long_conversations_and_texts_are_made_beside_the_loop() -> None:
    provider = Watched()
    many = ChatRequest(model="tiny", messages=(Message("user", "a"),) * LONG_CONVERSATION)
    run(provider.prompt_tokens(many))
    run(provider.prompt_tokens(ask("a" * LONG_TEXT)))
    assert provider.template.rendering.seen == ["long-work"] * 2
    assert provider.tokenizer.encoding.seen == ["MainThread", "long-work"]
    provider.tokenizer.reading.seen.clear()
    run(provider.detokenize([EOS] + [97] * LONG_LIST))
    assert provider.tokenizer.reading.seen == ["long-work"]


@pytest.mark.parametrize("chat", [True, False])
def test_a_hopeless_text_is_refused_uncounted(chat: bool) -> None:
    provider = Watched()
    error = provider.refusal(ask("a" * 200_000) if chat else text_of(200_000))
    assert isinstance(error, ContextLengthExceeded)
    assert f"at least {error.prompt_tokens} tokens" in error.message
    assert CONTEXT <= error.prompt_tokens <= 200_100
    assert str(CONTEXT) in error.message
    assert provider.tokenizer.encoding.seen == []


def test_what_might_fit_is_counted_exactly() -> None:
    provider = Watched()
    error = provider.refusal(text_of(1000))
    counted = run(provider.tokenize("a" * 1000))
    assert isinstance(error, ContextLengthExceeded)
    assert error.prompt_tokens == len(counted)
    assert "at least" not in error.message


def test_a_list_of_ids_is_measured_before_it_is_read() -> None:
    error = Watched().refusal(CompletionRequest(model="tiny", prompts=((-1,) * CONTEXT,)))
    assert error.code == "context_length_exceeded"


def test_counting_knows_no_context() -> None:
    assert len(run(Watched().tokenize("é" * LONG_TEXT))) == LONG_TEXT + 1


def test_what_is_too_long_for_anything_is_refused_uncounted() -> None:
    provider = Watched()
    for work in (provider.tokenize("a" * (LONGEST_TEXT + 1)), provider.prompt_tokens(ask("a" * LONGEST_TEXT))):
        with pytest.raises(ApiError, match="4194304") as caught:
            run(work)
        assert (caught.value.status, caught.value.code) == (413, "text_too_long")
    assert provider.tokenizer.encoding.seen == []


@pytest.mark.parametrize(
    "message",
    [
        Message("user", HUGE),
        Message("assistant", "", reasoning=HUGE),
        Message("assistant", "", tool_calls=(ToolCall("call_1", "f", HUGE),)),
    ],
    ids=["content", "reasoning", "arguments"],
)
def test_a_conversation_too_long_for_anything_never_reaches_its_template(message: Message) -> None:
    provider = Watched()
    conversation = ChatRequest(model="tiny", messages=(Message("user", "hi"), message))
    error = provider.refusal(conversation)
    assert isinstance(error, ContextLengthExceeded)
    assert error.at_least
    for work in (provider.prompt_tokens(conversation), provider.render(conversation)):
        with pytest.raises(ApiError, match=r"has 810000\d characters.*4194304") as caught:
            run(work)
        assert (caught.value.status, caught.value.code, caught.value.param) == (413, "text_too_long", "messages")
    assert provider.template.rendering.seen == []


def test_tools_are_part_of_that_text() -> None:
    provider = Watched()
    tools = (Tool("f", description="é" * (LONGEST_TEXT // 2)), Tool("g", description="é" * (LONGEST_TEXT // 2)))
    with pytest.raises(ApiError, match="4194304") as caught:
        run(provider.render(ChatRequest(model="tiny", messages=(Message("user", "hi"),), tools=tools)))
    assert caught.value.code == "text_too_long"
    assert provider.template.rendering.seen == []


def test_what_a_template_makes_too_long_is_not_shown() -> None:
    provider = Watched()
    with pytest.raises(ApiError, match="4194304") as caught:
        run(provider.render(ask("a" * LONGEST_TEXT)))
    assert (caught.value.status, caught.value.code) == (413, "text_too_long")
    assert provider.template.rendering.seen == ["long-work"]


def test_a_template_that_blows_up_is_blamed_itself() -> None:
    template = JinjaChatTemplate("{% for m in messages %}{{ m.content * 3 }}{% endfor %}")
    provider = LocalProvider(
        engine([97], context_length=CONTEXT), tokenizer=TinyTokenizer(), template=template, reasoning_format="none"
    )
    with pytest.raises(ApiError, match=r"chat template was stopped: it made a text of more than 8000000") as caught:
        run(provider.render(ask("a" * 3_000_000)))
    assert caught.value.status == 400


def test_a_vocabulary_of_stop_tokens_cannot_wait_for_the_minimum() -> None:
    everything = tuple(range(VOCAB_SIZE))
    error = Watched().refusal(ask(min_tokens=1, stop_token_ids=everything))
    assert error.param == "stop_token_ids"
    ends = {EOS, EOS + 1}
    error = Watched().refusal(ask(min_tokens=1, stop_token_ids=tuple(set(everything) - ends)))
    assert error.param == "stop_token_ids"
    sampling = Sampling(min_tokens=1, ignore_eos=True, stop_token_ids=tuple(set(everything) - ends))
    run(run(Watched().stream(CompletionRequest(model="tiny", prompts=("a",), sampling=sampling))).aclose())
