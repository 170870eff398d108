"""Batches of raw prompts: numbering, echo, ranking, fill-in-the-middle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from millstream.engine.protocol import TokenAlternatives, TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step, script
from millstream.ir.deltas import Content, Delta, Finish, Start, Usage
from millstream.ir.errors import ApiError, overloaded
from millstream.ir.fold import Answer, fold
from millstream.ir.request import CompletionRequest, Output, Sampling
from millstream.models.infill import find_infill
from millstream.pipeline.local import LocalProvider
from support.scripted_model import BOS, EOS, TinyTokenizer, engine, info, provider, run


def upper(request: TokenRequest) -> Iterable[Step]:
    """The prompt in capitals, then the number of the choice."""
    for step in script(request, [*(byte - 32 for byte in request.prompt[1:]), 48 + request.choice, EOS]):
        yield Pause()
        yield step


def deltas(engine_: ScriptedEngine, request: CompletionRequest) -> list[Delta]:
    async def work() -> list[Delta]:
        return [delta async for delta in await provider(engine_).stream(request)]

    return run(work())


def ask(*prompts: str | tuple[int, ...], **how: object) -> CompletionRequest:
    return CompletionRequest(model="tiny", prompts=prompts, **how)  # type: ignore[arg-type]


def texts(answer: Answer) -> list[str]:
    return [choice.text for choice in answer.choices]


def test_choices_are_numbered_prompt_by_prompt() -> None:
    playing = ScriptedEngine(upper, info=info())
    seen = deltas(playing, ask("a", "bc", "d", n=2))
    answer = fold(seen)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4, 5]
    assert texts(answer) == ["A0", "A1", "BC0", "BC1", "D0", "D1"]
    assert answer.usage == Usage(prompt_tokens=2 + 3 + 2, completion_tokens=2 * (3 + 4 + 3))
    assert sorted(delta.prompt for delta in seen if isinstance(delta, Start)) == [0, 1, 2]


def test_a_prompt_in_a_batch_is_what_it_is_alone() -> None:
    """The random numbers of a choice depend on seed, choice and position, so these must be the same."""
    playing = ScriptedEngine(upper, info=info())
    sampling = Sampling(seed=5)
    deltas(playing, ask("a", "b", n=2, sampling=sampling))
    deltas(playing, ask("b", n=2, sampling=sampling))
    batch, alone = playing.requests[2:4], playing.requests[4:]
    assert [(one.prompt, one.choice, one.sampling) for one in batch] == [
        (one.prompt, one.choice, one.sampling) for one in alone
    ]


def test_equal_prompts_without_a_seed_draw_different_numbers() -> None:
    playing = ScriptedEngine(upper, info=info())
    deltas(playing, ask("a", "a"))
    first, second = playing.requests
    assert first.sampling.seed != second.sampling.seed


def test_token_prompts_and_mixed_lengths() -> None:
    playing = ScriptedEngine(upper, info=info())
    assert texts(fold(deltas(playing, ask((BOS, 97), (BOS, 98, 99))))) == ["A0", "BC0"]


@pytest.mark.parametrize("stop", [(), ("0",)])
def test_echo_puts_each_prompt_before_its_choices(stop: tuple[str, ...]) -> None:
    playing = ScriptedEngine(upper, info=info())
    seen = deltas(playing, ask("a0", (BOS, 98), n=2, echo=True, sampling=Sampling(stop=stop)))
    tails = ["A\x10" if stop else "A\x100", "A\x101", "B" if stop else "B0", "B1"]
    wanted = [text + tail for text, tail in zip(["a0", "a0", "<bos>b", "<bos>b"], tails, strict=True)]
    assert texts(fold(seen)) == wanted
    firsts = {}
    for delta in seen:
        if isinstance(delta, Content):
            firsts.setdefault(delta.choice, delta.text)
    assert firsts == {0: "a0", 1: "a0", 2: "<bos>b", 3: "<bos>b"}


def test_only_the_echo() -> None:
    playing = ScriptedEngine(upper, info=info())
    answer = fold(deltas(playing, ask("a", "bc", echo=True, sampling=Sampling(max_tokens=0))))
    assert texts(answer) == ["a", "bc"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage == Usage(prompt_tokens=5)
    assert playing.requests == []


def ranked(logprobs: Sequence[float]) -> ScriptedEngine:
    """Choice k answers with its digit; its first token has the k-th log probability, its last one 0."""

    def plan(request: TokenRequest) -> Iterable[Step]:
        chosen = [TokenAlternatives(logprobs[request.choice]), TokenAlternatives(0.0)]
        yield TokenDelta(id=request.id, tokens=[48 + request.choice, EOS], logprobs=chosen, finish="stop")

    return ScriptedEngine(plan, info=info())


def test_best_of_answers_with_the_likeliest() -> None:
    seen = deltas(ranked([-3.0, -1.0, -2.0, -9.0]), ask("a", "b", n=2, best_of=4))
    answer = fold(seen)
    assert texts(answer) == ["1", "2", "1", "2"]
    assert answer.usage == Usage(prompt_tokens=4, completion_tokens=2 * 4 * 2)
    assert all(not choice.logprobs for choice in answer.choices)
    shown = fold(deltas(ranked([-3.0, -1.0]), ask("a", best_of=2, output=Output(logprobs=0))))
    assert [entry.logprob for entry in shown.choices[0].logprobs] == [-1.0, 0.0]


def test_best_of_fails_as_one() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        if request.choice == 1:
            return [TokenDelta(id=request.id, finish="error", error="out of memory")]
        return [TokenDelta(id=request.id, tokens=[97, EOS], logprobs=[TokenAlternatives(0.0)] * 2, finish="stop")]

    answer = fold(deltas(ScriptedEngine(plan, info=info()), ask("a", best_of=2)))
    assert answer.error is not None
    assert "out of memory" in answer.error.message


def test_a_full_queue_takes_nothing_of_a_batch() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        if request.prompt[-1] == ord("b"):
            raise overloaded("full", retry_after=1)
        return [Pause(None)]

    playing = ScriptedEngine(plan, info=info())
    with pytest.raises(ApiError, match="full"):
        run(provider(playing).stream(ask("a", "b")))
    assert playing.aborted == [playing.requests[0].id]


def test_leaving_early_aborts_everything() -> None:
    playing = ScriptedEngine(lambda request: [Pause(None)], info=info())

    async def work() -> None:
        for request in (ask("a", "b", n=2), ask("a", "b", best_of=2)):
            stream = await provider(playing).stream(request)
            await stream.aclose()

    run(work())
    assert sorted(playing.aborted) == sorted(request.id for request in playing.requests)


class InfillTokenizer(TinyTokenizer):
    """The scripted vocabulary with three more control tokens behind it."""

    NAMES = (b"<|fim_prefix|>", b"<|fim_suffix|>", b"<|fim_middle|>", b"<|file_sep|>")

    def __init__(self) -> None:
        super().__init__()
        self.base = self.vocab_size
        self.vocab_size += len(self.NAMES)

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        if parse_special and text.encode() in self.NAMES:
            return [self.base + self.NAMES.index(text.encode())]
        return super().encode(text, add_bos=add_bos, parse_special=parse_special)

    def token_bytes(self, token_id: int) -> bytes:
        return self.NAMES[token_id - self.base] if token_id >= self.base else super().token_bytes(token_id)


def test_a_suffix_is_filled_in_where_the_model_can() -> None:
    tokenizer = InfillTokenizer()
    prefix, suffix, middle, separator = range(tokenizer.base, tokenizer.vocab_size)
    playing = engine([120, separator, 121])
    how = LocalProvider(playing, tokenizer=tokenizer, template=None)

    async def work() -> list[Delta]:
        request = ask("x<eos>", suffix="z", echo=True, sampling=Sampling(max_tokens=5))
        return [delta async for delta in await how.stream(request)]

    seen = run(work())
    assert playing.requests[0].prompt == [BOS, prefix, *b"x<eos>", suffix, *b"z", middle]
    assert texts(fold(seen)) == ["x<eos>x"]
    assert isinstance(seen[-1], Finish)
    assert seen[-1].reason == "stop"


def test_no_infill_without_the_tokens() -> None:
    assert find_infill(TinyTokenizer()) is None
