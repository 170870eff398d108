"""The local provider end to end on a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step, script
from millstream.ir.deltas import Content, Delta, Error, Start, Usage
from millstream.ir.errors import ApiError, overloaded
from millstream.ir.fold import Answer, collect, fold
from millstream.ir.request import ChatRequest, CompletionRequest, Output, Request, Sampling, Service
from millstream.pipeline.local import LONG_TEXT, LocalProvider
from support.reference import answer, decoded
from support.scripted_model import (
    BOS,
    EOS,
    TURN,
    VOCAB_SIZE,
    TinyTemplate,
    TinyTokenizer,
    ask,
    engine,
    info,
    provider,
    run,
)
from support.strategies import cuts, stop_strings, tokens

ALL = Output(logprobs=1, token_ids=True)


def deltas(engine: ScriptedEngine, request: Request) -> list[Delta]:
    async def work() -> list[Delta]:
        return [delta async for delta in await provider(engine).stream(request)]

    return run(work())


def refused(request: Request, *, engine_: ScriptedEngine | None = None, **how: Any) -> ApiError:
    """The refusal of a request; nothing may have been queued."""
    engine_ = engine_ or engine([EOS])
    with pytest.raises(ApiError) as caught:
        run(provider(engine_, **how).stream(request))
    assert engine_.requests == []
    return caught.value


@given(tokens(), st.data())
@settings(max_examples=60)
def test_the_answer_is_the_reference_however_it_is_cut(ids: list[int], data: st.DataObject) -> None:
    stops = data.draw(stop_strings("".join(char for char, _ in decoded(ids))))
    request = ask(stop=stops, max_tokens=16, output=ALL)
    expected = answer(ids, stops=stops, stop_ids={EOS, TURN}, min_tokens=0, max_tokens=16)
    seen = [fold(deltas(engine(ids, cuts=at), request)) for at in (None, (), data.draw(cuts(len(ids))))]
    assert seen[0] == seen[1] == seen[2]
    (choice,) = seen[0].choices
    assert (choice.text, choice.stop_sequence, choice.finish_reason, list(choice.token_ids)) == expected
    assert len(choice.logprobs) == len(expected.tokens)


@given(tokens(), st.data())
@settings(max_examples=40)
def test_stream_and_collect_are_one(ids: list[int], data: st.DataObject) -> None:
    at = data.draw(cuts(len(ids)))

    async def whole() -> Answer:
        return await collect(await provider(engine(ids, cuts=at)).stream(ask(output=ALL)))

    assert run(whole()) == fold(deltas(engine(ids, cuts=at), ask(output=ALL)))


@given(st.lists(tokens(max_size=8), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_choices_together_are_what_they_are_alone(texts: list[list[int]], data: st.DataObject) -> None:
    at = [data.draw(cuts(len(ids))) for ids in texts]
    stops = data.draw(stop_strings("".join(char for char, _ in decoded(texts[0]))))

    def plan(request: TokenRequest) -> Iterable[Step]:
        for step in script(request, texts[request.choice], cuts=at[request.choice]):
            yield Pause()
            yield step

    together = deltas(ScriptedEngine(plan, info=info()), ask(n=len(texts), stop=stops, output=Output(token_ids=True)))
    assert [delta for delta in together if isinstance(delta, Start)] == together[:1]
    for choice in fold(together).choices:
        alone = deltas(engine(texts[choice.index]), ask(stop=stops, output=Output(token_ids=True)))
        (expected,) = fold(alone).choices
        assert (choice.text, choice.finish_reason, choice.token_ids, choice.usage) == (
            expected.text,
            expected.finish_reason,
            expected.token_ids,
            expected.usage,
        )
    assert len(fold(together).choices) == len(texts)


def test_what_the_engine_is_asked() -> None:
    playing = engine([97, EOS])
    request = ChatRequest(
        model="tiny",
        messages=ask("hey").messages,
        sampling=Sampling(
            temperature=0.5, top_k=4, seed=-1, max_tokens=7, min_tokens=1, stop_token_ids=(3,), logit_bias={5: -1.0}
        ),
        output=Output(logprobs=2),
        n=2,
        tenant="t",
        service=Service(priority=3, timeout=50.0, speculation=False),
    )
    run(_read(provider(playing), request))
    first, second = playing.requests
    assert bytes(first.prompt[1:9]) == b"user:hey"
    assert (first.prompt[0], first.prompt[9], first.prompt.count(BOS)) == (BOS, TURN, 1)
    assert (first.choice, second.choice) == (0, 1)
    assert first.id != second.id
    assert first.sampling == second.sampling
    assert first.sampling.seed == 2**64 - 1
    assert (first.sampling.temperature, first.sampling.top_k, first.sampling.logprobs) == (0.5, 4, 2)
    assert first.sampling.logit_bias == {5: -1.0}
    assert first.stop_ids == (3, EOS, TURN)
    assert (first.max_tokens, first.min_tokens, first.tenant, first.priority) == (7, 1, "t", 3)
    assert first.deadline is not None
    assert first.deadline == second.deadline
    assert not first.speculation


async def _read(provider: LocalProvider, request: Request) -> list[Delta]:
    return [delta async for delta in await provider.stream(request)]


def test_a_top_k_beyond_the_vocabulary_takes_all_of_it() -> None:
    playing = engine([EOS])
    run(_read(provider(playing), ask(top_k=10**12)))
    assert playing.requests[0].sampling.top_k == VOCAB_SIZE


def test_seeds_are_drawn_when_none_is_given() -> None:
    playing = engine([EOS])
    for _ in range(2):
        run(_read(provider(playing), ask()))
    assert playing.requests[0].sampling.seed != playing.requests[1].sampling.seed


def test_ignore_eos_leaves_only_the_asked_stop_tokens() -> None:
    playing = engine([97, EOS, 98, 99])
    seen = fold(run(_read(provider(playing), ask(ignore_eos=True, stop_token_ids=(98,))))).choices[0]
    assert playing.requests[0].stop_ids == (98,)
    assert (seen.text, seen.finish_reason) == ("a", "stop")


@pytest.mark.parametrize("prompt", ["hey", tuple(b"hey")])
def test_completions_take_text_or_ids(prompt: str | tuple[int, ...]) -> None:
    playing = engine([97, EOS])
    seen = fold(deltas(playing, CompletionRequest(model="tiny", prompts=(prompt,))))
    assert seen.choices[0].text == "a"
    assert playing.requests[0].prompt == ([BOS] if isinstance(prompt, str) else []) + list(b"hey")


@pytest.mark.parametrize("prompt", ["", ()])
def test_an_empty_prompt_begins_with_bos_or_is_refused(prompt: str | tuple[int, ...]) -> None:
    request = CompletionRequest(model="tiny", prompts=(prompt,))
    playing = engine([EOS])
    deltas(playing, request)
    assert playing.requests[0].prompt == [BOS]

    async def work() -> None:
        await LocalProvider(engine([EOS]), tokenizer=TinyTokenizer(bos=False), template=None).stream(request)

    with pytest.raises(ApiError, match="prompt is empty"):
        run(work())


def test_a_long_text_is_tokenised_like_a_short_one() -> None:
    playing = engine([EOS], context_length=10**6)
    deltas(playing, CompletionRequest(model="tiny", prompts=("€" * LONG_TEXT,)))
    assert len(playing.requests[0].prompt) == 1 + LONG_TEXT


@pytest.mark.parametrize("size", [10, 11, 50])
def test_a_prompt_without_room_for_an_answer_is_refused(size: int) -> None:
    error = refused(CompletionRequest(model="tiny", prompts=((97,) * size,)), engine_=engine([EOS], context_length=10))
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "prompt")
    assert str(size) in error.message
    assert "10 tokens" in error.message


@pytest.mark.parametrize("asked", [None, 3, 500])
def test_max_tokens_beyond_the_context_ends_there(asked: int | None) -> None:
    playing = engine([97] * 20, context_length=10)
    request = CompletionRequest(model="tiny", prompts=((97,) * 7,), sampling=Sampling(max_tokens=asked))
    (choice,) = fold(deltas(playing, request)).choices
    assert (choice.text, choice.finish_reason) == ("aaa", "length")


def test_a_lone_surrogate_is_refused() -> None:
    assert "surrogate" in refused(CompletionRequest(model="tiny", prompts=("a\ud800",))).message
    assert "surrogate" in refused(ask("a\ud800")).message


def test_an_unknown_model_is_404() -> None:
    error = refused(CompletionRequest(model="other", prompts=("a",)))
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "tiny" in error.message
    assert [card.id for card in provider(engine([])).models()] == ["tiny"]


@pytest.mark.parametrize(
    ("sampling", "output", "param", "words"),
    [
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, {}, "logit_bias", str(VOCAB_SIZE)),
        ({"logit_bias": {-1: 1.0}}, {}, "logit_bias", "-1"),
        ({"stop_token_ids": (VOCAB_SIZE,)}, {}, "stop_token_ids", str(VOCAB_SIZE)),
        ({"max_tokens": 0}, {}, "max_tokens", "0"),
        ({"min_tokens": -1}, {}, "min_tokens", "-1"),
        ({"min_tokens": 5, "max_tokens": 4}, {}, "min_tokens", "5"),
        ({"stop": ("a", "")}, {}, "stop", "empty"),
        ({}, {"n": 0}, "n", "0"),
        ({}, {"prompts": ((0, VOCAB_SIZE),)}, "prompt", str(VOCAB_SIZE)),
        ({}, {"prompts": ("a", (0, VOCAB_SIZE))}, "prompt[1]", str(VOCAB_SIZE)),
        ({}, {"prompts": ()}, "prompt", "one"),
        ({}, {"suffix": "a"}, "suffix", "fill-in-the-middle"),
        ({}, {"n": 3, "best_of": 2}, "best_of", "3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    sampling: dict[str, Any], output: dict[str, Any], param: str, words: str
) -> None:
    how = {"prompts": ("a",), "sampling": Sampling(**sampling), **output}
    error = refused(CompletionRequest(model="tiny", **how))
    assert (error.status, error.param) == (400, param)
    assert words in error.message


def test_chat_needs_a_template() -> None:
    async def work() -> None:
        await LocalProvider(engine([EOS]), tokenizer=TinyTokenizer(), template=None).stream(ask())

    with pytest.raises(ApiError, match="no chat template"):
        run(work())


def test_a_refused_choice_aborts_those_before_it() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        if request.choice == 2:
            raise overloaded("The queue is full.", retry_after=1)
        return [Pause(None)]

    playing = ScriptedEngine(plan, info=info())
    with pytest.raises(ApiError, match="queue is full"):
        run(provider(playing).stream(ask(n=4)))
    assert playing.aborted == [request.id for request in playing.requests]
    assert len(playing.aborted) == 2


@pytest.mark.parametrize("last", [RuntimeError("secret"), TokenDelta("", finish="error", error="Died.")])
def test_a_failing_choice_ends_the_stream_and_aborts_the_others(last: Step) -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        return [TokenDelta("", [97]), last if request.choice == 1 else Pause(None)]

    playing = ScriptedEngine(plan, info=info())
    seen = deltas(playing, ask(n=3))
    assert isinstance(seen[-1], Error)
    assert "secret" not in seen[-1].message
    assert sorted(playing.aborted) == sorted(r.id for r in playing.requests if r.choice != 1)


def test_a_sequence_that_just_stops_is_an_error() -> None:
    seen = deltas(engine([97], then=None), ask())
    assert seen[1] == Content("a")
    assert isinstance(seen[2], Error)
    assert "without a result" in seen[2].message


def test_a_stop_string_aborts_the_sequence_at_once() -> None:
    async def work() -> None:
        playing = engine([*b"ab<>cd"], cuts=[5])
        stream = await provider(playing).stream(ask(stop=("<>",)))
        await anext(stream)  # the first step is decoded now; its reader has not come to the end yet
        assert playing.aborted == [playing.requests[0].id]
        assert playing.steps == 1
        (choice,) = fold([delta async for delta in stream]).choices
        assert (choice.text, choice.finish_reason, choice.usage) == ("ab", "stop", Usage(19, 4))

    run(work())


@given(st.integers(1, 3), st.integers(0, 12), st.booleans())
@settings(max_examples=40)
def test_leaving_at_any_point_aborts_every_sequence(n: int, after: int, cancel: bool) -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        yield from (TokenDelta("", [97]) for _ in range(request.choice + 2))
        yield Pause(None)

    async def work() -> None:
        playing = ScriptedEngine(plan, info=info())
        stream = await provider(playing).stream(ask(n=n))

        async def consume() -> int:
            count = 0
            async for delta in stream:
                assert isinstance(delta, Start | Content)
                count += 1
                if count == after:
                    break
            return count

        task = asyncio.create_task(consume())
        await asyncio.wait([task], timeout=0.002)
        if cancel and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await stream.aclose()
        await asyncio.gather(task, return_exceptions=True)
        assert sorted(playing.aborted) == sorted(request.id for request in playing.requests)
        assert (await playing.stats()).running == 0
        assert [delta async for delta in stream] == []

    run(work())


def test_a_stalled_reader_pauses_its_sequences() -> None:
    async def work() -> None:
        playing = engine([97] * 1000)
        stream = await provider(playing).stream(ask(n=2))
        await anext(stream)
        for _ in range(500):
            await asyncio.sleep(0)
        assert playing.steps < 200
        await stream.aclose()

    run(work())


def test_a_template_may_refuse() -> None:
    class Strict(TinyTemplate):
        def render(self, *args: Any, **kwargs: Any) -> str:
            raise ApiError("Roles must alternate.")

    playing = engine([EOS])
    with pytest.raises(ApiError, match="alternate"):
        run(LocalProvider(playing, tokenizer=TinyTokenizer(), template=Strict()).stream(ask()))
    assert playing.requests == []
