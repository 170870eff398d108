"""Echo with log probabilities: every token of prompt and answer once, in order, and where it stands in the text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.protocol import TokenAlternatives, TokenDelta, TokenRequest
from millstream.engine.scripted import ScriptedEngine, Step, script
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, Usage
from millstream.ir.fold import Answer, fold
from millstream.ir.request import CompletionRequest, Output, Sampling, Service
from millstream.pipeline.echo import shown_tokens
from millstream.pipeline.local import LocalProvider
from millstream.surfaces import openai_completions
from millstream.surfaces.wire import WireOptions
from pipeline.test_prompts import InfillTokenizer
from support.scripted_model import BOS, EOS, PIECES, TURN, TinyTokenizer, alternatives, info, provider, run
from support.wire import chunks, legal, write

OPTIONS = WireOptions(model="tiny", logprobs=True)


def prompt_alternatives(index: int) -> TokenAlternatives:
    return TokenAlternatives(-0.125 * index, [97, 98], [-0.0625 * index, -3.0])


def cut(delta: TokenDelta, sizes: Sequence[int]) -> Iterable[TokenDelta]:
    """The prompt's log probabilities of a delta told in several steps, the last together with the rest."""
    scores = delta.prompt_logprobs
    for size in sizes:
        if not size < len(scores):
            break
        yield TokenDelta(id=delta.id, prompt_logprobs=scores[:size])
        scores = scores[size:]
    yield TokenDelta(
        id=delta.id, tokens=delta.tokens, logprobs=delta.logprobs, finish=delta.finish, prompt_logprobs=scores
    )


def playing(tokens: Sequence[int], sizes: Sequence[int] = ()) -> ScriptedEngine:
    def plan(request: TokenRequest) -> Iterable[Step]:
        for step in script(request, tokens, alternatives=alternatives, prompt_alternatives=prompt_alternatives):
            yield from cut(step, sizes)

    return ScriptedEngine(plan, info=info())


def deltas(engine: ScriptedEngine, *prompts: str | tuple[int, ...], logprobs: int = 2, **how: Any) -> list[Delta]:
    request = CompletionRequest(
        model="tiny", prompts=prompts, echo=True, **{"output": Output(logprobs=logprobs), **how}
    )

    async def work() -> list[Delta]:
        return [delta async for delta in await provider(engine).stream(request)]

    return run(work())


def wire(answer: Answer, choice: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(openai_completions.encode_answer(answer, OPTIONS))
    return body["choices"][choice]


def raw(token: str) -> bytes:
    """The bytes of a token as the legacy format writes it."""
    return (
        bytes.fromhex(token.removeprefix("bytes:").replace("\\x", "")) if token.startswith("bytes:") else token.encode()
    )


IDS = st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 4), max_size=6)


@given(IDS, IDS, SIZES)
def test_ids_of_any_bytes_join_to_the_text(prompt: list[int], answer: list[int], sizes: list[int]) -> None:
    """Characters may be cut anywhere, also between prompt and answer."""
    seen = deltas(playing([*answer, EOS], sizes), tuple(prompt), sampling=Sampling(max_tokens=50))
    choice = wire(fold(seen))
    told = choice["logprobs"]
    names = [*prompt, *answer, EOS]
    whole = b"".join(PIECES[token] for token in names[:-1])
    assert choice["text"] == whole.decode("utf-8", "replace")
    assert [raw(token) for token in told["tokens"]] == [*(PIECES[token] for token in names[:-1]), b"<eos>"]
    scores = [prompt_alternatives(k).logprob for k in range(1, len(prompt))]
    assert told["token_logprobs"] == [None, *scores, *(alternatives(k).logprob for k in range(len(answer) + 1))]
    assert told["top_logprobs"][0] is None
    assert all(top is not None for top in told["top_logprobs"][1:])
    for index, offset in enumerate(told["text_offset"][:-1]):
        token = PIECES[names[index]]
        if token and token[0] & 0xC0 != 0x80:  # it begins a character, or cuts one short
            before = b"".join(PIECES[name] for name in names[:index]).decode("utf-8", "replace")
            assert offset == len(before)


@given(st.text(max_size=20), st.text(max_size=20), SIZES)
def test_texts_join_to_the_text(prompt: str, answer: str, sizes: list[int]) -> None:
    tokenizer = TinyTokenizer()
    made = tokenizer.encode(answer, parse_special=False)
    seen = deltas(playing([*made, EOS], sizes), prompt, sampling=Sampling(max_tokens=200))
    choice = wire(fold(seen))
    told = choice["logprobs"]
    assert choice["text"] == prompt + answer
    assert told["tokens"][0] == "<bos>"
    assert len(told["tokens"]) == 1 + len(tokenizer.encode(prompt)) + len(made) + 1
    assert b"".join(map(raw, told["tokens"][1:-1])).decode() == prompt + answer
    assert told["text_offset"] == sorted(told["text_offset"])
    assert told["text_offset"][:2] == [0, 0]
    assert told["text_offset"][-1] == len(prompt + answer)
    for token, offset in zip(told["tokens"][1:-1], told["text_offset"][1:-1], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"][offset : offset + len(token)] == token


@given(st.text(min_size=1, max_size=20), SIZES)
def test_streamed_is_whole(prompt: str, sizes: list[int]) -> None:
    seen = deltas(playing([97, 98, EOS], sizes), prompt)
    encoder = openai_completions.stream_encoder(OPTIONS)
    whole = wire(fold(seen))
    text, parts = "", []
    for chunk in chunks(legal(write(encoder, seen), "completions")):
        for choice in chunk["choices"]:
            text += choice["text"]
            parts.append(choice.get("logprobs") or {})
    assert text == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts for value in part.get(name, [])] == values


def test_control_tokens_of_a_prompt_stand_in_its_text() -> None:
    for prompt in ("a<turn>b", (BOS, 97, TURN, 98)):
        told = wire(fold(deltas(playing([99, EOS]), prompt)))
        begins = 5 * (prompt != "a<turn>b")
        assert told["text"] == "<bos>" * (begins > 0) + "a<turn>bc"
        assert told["logprobs"]["tokens"] == ["<bos>", "a", "<turn>", "b", "c", "<eos>"]
        assert told["logprobs"]["text_offset"] == [0, *(begins + at for at in (0, 1, 7, 8, 9))]


@pytest.mark.parametrize("sizes", [(), (1, 1)])
@pytest.mark.parametrize("n", [1, 2])
def test_only_scored(n: int, sizes: tuple[int, ...]) -> None:
    engine = playing([97], sizes)
    seen = deltas(engine, "xyz", (120,), n=n, best_of=3, sampling=Sampling(max_tokens=0))
    answer = fold(seen)
    assert [choice.text for choice in answer.choices] == ["xyz"] * n + ["x"] * n
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage == Usage(prompt_tokens=5)
    assert [(each.max_tokens, each.prompt_logprobs) for each in engine.requests] == [(0, 2)] * 2 * n
    assert wire(answer)["logprobs"]["token_logprobs"] == [None, -0.125, -0.25, -0.375]
    assert wire(answer, n)["logprobs"]["token_logprobs"] == [None]
    assert wire(answer, n)["logprobs"]["top_logprobs"] == [None]


def test_what_is_not_asked_for_is_not_read() -> None:
    for how in ({"output": Output()}, {"output": Output(), "best_of": 2}):
        engine = playing([97, EOS])
        deltas(engine, "a", **how)
        assert {each.prompt_logprobs for each in engine.requests} == {None}
    engine = playing([97, EOS])
    deltas(engine, "a", logprobs=0)
    assert [each.prompt_logprobs for each in engine.requests] == [0]


def test_as_many_alternatives_as_were_asked_for() -> None:
    told = wire(fold(deltas(playing([97, EOS]), "xy", logprobs=1)))["logprobs"]
    assert told["top_logprobs"] == [
        None, {"a": -0.0625, "x": -0.125}, {"a": -0.125, "y": -0.25}, {"a": -0.5}, {"a": -1.25, "<eos>": -1.5},
    ]  # fmt: skip


def test_the_prompt_does_not_decide_which_answer_is_best() -> None:
    """Choice 1 is likelier, but says less, so that the prompt would weigh more."""
    answers = {0: ([97, 98, 99, EOS], -1.5), 1: ([98, EOS], -1.0)}

    def plan(request: TokenRequest) -> Iterable[Step]:
        tokens, logprob = answers[request.choice]
        return script(
            request,
            tokens,
            alternatives=lambda _: TokenAlternatives(logprob),
            prompt_alternatives=lambda _: TokenAlternatives(-9.0),
        )

    answer = fold(deltas(ScriptedEngine(plan, info=info()), "xy", best_of=2))
    assert answer.choices[0].text == "xyb"
    assert [entry.logprob for entry in answer.choices[0].logprobs[1:]] == [-9.0, -9.0, -1.0, -1.0]
    assert math.isnan(answer.choices[0].logprobs[0].logprob)


def test_a_prompt_to_be_filled_in_shows_what_was_sent() -> None:
    tokenizer = InfillTokenizer()
    how = LocalProvider(playing([120, EOS]), tokenizer=tokenizer, template=None)
    request = CompletionRequest(
        model="tiny", prompts=("é",), suffix="z", echo=True, output=Output(logprobs=0), sampling=Sampling(max_tokens=5)
    )

    async def work() -> list[Delta]:
        return [delta async for delta in await how.stream(request)]

    told = wire(fold(run(work())))
    assert told["text"] == "éx"
    tokens = told["logprobs"]["tokens"]
    assert [tokens[2], tokens[-2]] == ["é", "x"]
    assert told["logprobs"]["text_offset"] == [0, 0, 0, 1, 1, 1, 1, 2]


def test_the_answer_begins_where_the_prompt_ends() -> None:
    seen = deltas(playing([0x82, 0xAC, EOS]), (97, 0xE2), output=Output())
    assert [delta.text for delta in seen if isinstance(delta, Content)] == ["a", "€"]
    alone = deltas(playing([EOS]), (97, 0xE2), output=Output(), sampling=Sampling(max_tokens=0))
    assert [delta.text for delta in alone if isinstance(delta, Content)] == ["a\ufffd"]
    cut_short = deltas(playing([98, EOS]), (97, 0xE2), output=Output())
    assert fold(cut_short).choices[0].text == "a\ufffdb"


def test_a_failing_engine_ends_the_stream() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        yield TokenDelta(id=request.id, prompt_logprobs=[prompt_alternatives(1)])
        yield TokenDelta(id=request.id, finish="error", error="broken")

    seen = deltas(ScriptedEngine(plan, info=info()), "xyz")
    assert [type(delta).__name__ for delta in seen] == ["Start", "Content", "Error"]


@pytest.mark.parametrize(
    ("tokens", "text", "shown"),
    [
        ([b"<s>", b" Hi", b" you"], "Hi you", [None, b"Hi", b" you"]),
        ([b"<s>", b" Hi"], " Hi", [None, b" Hi"]),
        ([b"<s>", b" ", b" Hi"], " Hi", [None, b"", b" Hi"]),
        ([b"<s>", b"Hi"], "<s>Hi", [b"<s>", b"Hi"]),
        ([b"<s>", b"\xc3\xa9"], "e\u0301", [None, b"\xc3\xa9"]),
        ([b"<s>"], "", [None]),
    ],
)
def test_how_tokens_stand_in_a_text(tokens: list[bytes], text: str, shown: list[bytes | None]) -> None:
    assert shown_tokens(tokens, text, bos=True) == shown


def test_usage_and_order() -> None:
    seen = deltas(playing([97, EOS], (1,)), "xyz")
    assert isinstance(seen[0], Start)
    assert isinstance(seen[-1], Finish)
    assert fold(seen).usage == Usage(prompt_tokens=4, completion_tokens=2)


SCORES = [prompt_alternatives(k) for k in range(1, 3)]
NO_TIME = TokenDelta("", finish="timeout")


def ended(*steps: TokenDelta, **how: Any) -> list[Delta]:
    """Deltas of the echo of three tokens when the engine says ``steps``."""
    engine = ScriptedEngine(lambda request: steps, info=info())
    return deltas(engine, (97, 98, 99), service=Service(timeout=60.0), **how)


@pytest.mark.parametrize("max_tokens", [0, 5])
@pytest.mark.parametrize(
    "steps", [(NO_TIME,), (TokenDelta(""), NO_TIME), (TokenDelta("", prompt_logprobs=SCORES[:1]), NO_TIME)]
)
def test_a_prompt_that_is_not_scored_in_time_is_a_failure(steps: tuple[TokenDelta, ...], max_tokens: int) -> None:
    """An echo alone ends with "length" when all is well, so one that was cut must not."""
    last = ended(*steps, sampling=Sampling(max_tokens=max_tokens))[-1]
    assert isinstance(last, Error)
    assert last.status == 504


@pytest.mark.parametrize("steps", [(NO_TIME,), (TokenDelta(""), NO_TIME)])
def test_an_echo_without_a_token_of_an_answer_ends_at_the_limit(steps: tuple[TokenDelta, ...]) -> None:
    seen = ended(*steps, output=Output(), sampling=Sampling(max_tokens=5))
    assert wire(fold(seen))["text"] == "abc"
    assert fold(seen).choices[0].finish_reason == "length"


def test_an_echo_with_a_token_of_an_answer_is_an_answer() -> None:
    seen = ended(TokenDelta("", [97]), NO_TIME, output=Output(), sampling=Sampling(max_tokens=5))
    assert wire(fold(seen))["text"] == "abca"
    assert fold(seen).choices[0].finish_reason == "length"


def test_a_scored_prompt_whose_answer_is_cut_is_an_answer() -> None:
    step = TokenDelta("", [97], [alternatives(0)], prompt_logprobs=SCORES)
    seen = ended(step, NO_TIME, sampling=Sampling(max_tokens=5))
    choice = wire(fold(seen))
    assert (choice["text"], choice["finish_reason"], len(choice["logprobs"]["tokens"])) == ("abca", "length", 4)


def test_a_scored_prompt_without_an_answer_is_complete_in_time() -> None:
    seen = ended(TokenDelta("", finish="length", prompt_logprobs=SCORES), sampling=Sampling(max_tokens=0))
    choice = wire(fold(seen))
    assert (choice["text"], choice["finish_reason"], len(choice["logprobs"]["tokens"])) == ("abc", "length", 3)


def test_one_choice_with_tokens_makes_an_answer_of_all() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        return [TokenDelta("", [97] * request.choice), NO_TIME]

    seen = deltas(
        ScriptedEngine(plan, info=info()),
        (97, 98, 99),
        n=2,
        output=Output(),
        service=Service(timeout=60.0),
        sampling=Sampling(max_tokens=5),
    )
    answer = fold(seen)
    assert [wire(answer, choice)["text"] for choice in (0, 1)] == ["abc", "abca"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
