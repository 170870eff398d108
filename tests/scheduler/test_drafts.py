"""Speculation: drafts of what is known, the same tokens with them as without."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.drafts import DRAFT_ROWS, LONGEST_DRAFT, Drafter, most_rows
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler
from support.scripted_runner import ScriptedRunner, expected_output, repeating

BLOCK = 4


RECORDED = Path(__file__).parent / "recorded_answers.json"
"""Of Qwen2.5-Coder-0.5B: a JavaScript file with two changes asked for, greedy; a story, drawn at temperature 1."""


def said(drafter: Drafter, tokens: list[int], more: list[int]) -> None:
    for token in more:
        tokens.append(token)
        drafter.extend()


def play(prompt: list[int], answer: list[int], sequences: int = 1) -> tuple[int, int, int]:
    """Steps that decode the answer, tokens that were drafted in them, and those that were right."""
    tokens = prompt + answer[:1]
    drafter = Drafter(tokens)
    steps = drafted = accepted = 0
    while left := answer[len(tokens) - len(prompt) :]:
        draft = drafter.draft(len(left) - 1, sequences)
        right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, left, strict=False)))
        said(drafter, tokens, left[: right + 1])
        steps, drafted, accepted = steps + 1, drafted + len(draft), accepted + right
    return steps, drafted, accepted


def test_what_followed_the_same_words_is_drafted() -> None:
    drafter = Drafter([1, 2, 3, 4, 5, 6, 1, 2, 3])
    assert drafter.draft(2) == [4, 5]
    assert drafter.draft(0) == []
    assert Drafter([1, 2, 3, 4, 5, 6, 7, 8]).draft(9) == []
    assert Drafter([1]).draft(9) == []


def test_the_latest_place_is_taken_and_kept_while_the_copy_holds() -> None:
    tokens = [1, 2, 3, 4, 9, 1, 2, 3, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter = Drafter(tokens)
    assert drafter.draft(2) == [5, 6]
    said(drafter, tokens, [5, 6])
    assert drafter.draft(2) == [7, 8]


COPIED = list(range(100, 140))


@pytest.mark.parametrize(
    ("written", "next_place"),
    [
        ([0, 11], 12),  # one token changed
        ([0, 0, 12], 13),  # two tokens changed
        ([0, 0, 0, 0, 11], 12),  # three changed, or two put in
        ([0, 10], 11),  # one put in
        ([0, 0, 0, 0, 10], 11),  # four put in
        ([15, 16], 17),  # five left out
    ],
)
def test_a_copy_is_taken_up_again_behind_an_edit(written: list[int], next_place: int) -> None:
    """Numbers from 10 on stand for the copied tokens of these places, 0 for tokens that the text does not have."""
    tokens = [*COPIED, 1, 2, 3, *COPIED[:10]]
    drafter = Drafter(tokens)
    assert drafter.draft(2) == COPIED[10:12]
    said(drafter, tokens, [COPIED[place] if place else 900 + at for at, place in enumerate(written)])
    assert drafter.draft(1) == [COPIED[next_place]]


def test_where_words_are_replaced_one_by_one_the_copy_is_drafted_right_behind_them() -> None:
    text = list(range(1000, 1100))
    tokens = [*text, 0, 1, 2]
    drafter = Drafter(tokens)
    after_change = []
    for at in range(0, 40, 8):
        said(drafter, tokens, [*text[at : at + 7], 7])
        after_change.append(drafter.draft(1) == [text[at + 8]])
    assert after_change == [False, False, False, True, True]


def test_an_answer_that_has_left_a_copy_for_long_is_not_taken_for_its_continuation() -> None:
    tokens = [*COPIED, 1, 2, 3, *COPIED[:10]]
    drafter = Drafter(tokens)
    said(drafter, tokens, [*range(900, 930), COPIED[10]])
    assert drafter.draft(9) == []
    said(drafter, tokens, COPIED[11:13])
    assert drafter.draft(1) == [COPIED[13]]


def test_drafts_are_as_long_as_the_copy_is_sure() -> None:
    """They grow while they hold, shrink after edits, and are shorter where every row is one of many."""
    text = list(range(1000, 1100))
    tokens = [*text, 0, 1, 2, *text[:3]]
    drafter = Drafter(tokens)
    first = len(drafter.draft(99))
    said(drafter, tokens, text[3:13])
    assert [len(drafter.draft(99, sequences)) for sequences in (1, 2, 4, 16)] == [7, 5, 3, 1]
    said(drafter, tokens, text[13:53])
    grown = len(drafter.draft(99))
    assert 0 < first < grown == LONGEST_DRAFT
    said(drafter, tokens, [7, *text[54:56], 7, *text[57:59]])
    assert 0 < len(drafter.draft(99)) < grown


def test_drafts_that_fail_are_no_longer_made() -> None:
    """A text in which every run of words comes again, and goes on differently each time."""
    answer = [[7, 7, 7, 1000 + step][step % 4] for step in range(1000)]
    assert [play([7], answer[:length])[1:] for length in (100, 1000)] == [(8, 0)] * 2


def test_recorded_answers_take_as_many_steps_as_they_did() -> None:
    """A change of these numbers is one of speed: tokens per step, against `ROW_COST` for each drafted one."""
    recorded = json.loads(RECORDED.read_text())
    edit, story = ((each["prompt"], each["answer"]) for each in (recorded["edit"], recorded["story"]))
    assert (len(edit[1]), len(story[1])) == (271, 295)
    assert play(*edit) == (42, 242, 228)
    assert play(*edit, sequences=8) == (60, 217, 210)
    assert play(*story) == (286, 17, 8)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(-1, 20),
    st.integers(1, 70),
)
def test_what_is_drafted_stands_in_the_text(prompt: list[int], more: list[int], most: int, sequences: int) -> None:
    tokens = list(prompt)
    drafter = Drafter(tokens)
    for token in more:
        draft = drafter.draft(most, sequences)
        assert len(draft) <= min(max(most, 0), LONGEST_DRAFT)
        assert any(tokens[at : at + len(draft)] == draft for at in range(len(tokens) - len(draft) + 1))
        said(drafter, tokens, [token])


def config(**options: int) -> SchedulerConfig:
    return SchedulerConfig(kv_blocks=options.pop("kv_blocks", 200), block_size=BLOCK, **options)  # type: ignore[arg-type]


def run(engine: EngineCore, requests: list[TokenRequest]) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    return deltas


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.tokens]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(24, 60),
    st.integers(1, 40),
    st.booleans(),
)
def test_tokens_are_those_of_plain_decoding(
    work: list[tuple[int, int, bool]], period: int, kv_blocks: int, step_tokens: int, cache: bool
) -> None:
    """With stop tokens, limits, too few blocks, small steps; some without speculation."""
    model = repeating(period)
    scheduler = Scheduler(config(kv_blocks=kv_blocks, step_tokens=step_tokens, prefix_cache=cache))
    engine = EngineCore(scheduler, ScriptedRunner(BLOCK, model))
    requests = [
        TokenRequest(
            id=str(k),
            prompt=[(k + j) % 7 for j in range(length)],
            sampling=SamplingParams(),
            max_tokens=most,
            stop_ids=(k + 50,),
            speculation=speculation,
        )
        for k, (length, most, speculation) in enumerate(work)
    ]
    deltas = run(engine, requests)
    assert engine.stats().kv_blocks_used == 0
    for request in requests:
        assert (tokens_of(deltas[request.id]), deltas[request.id][-1].finish) == expected_output(request, model)
        if not request.speculation:
            assert not any(delta.drafted for delta in deltas[request.id])


def test_a_text_that_repeats_itself_takes_few_steps() -> None:
    model = repeating(30)
    engine = EngineCore(Scheduler(config()), ScriptedRunner(BLOCK, model))
    request = TokenRequest(id="a", prompt=list(range(60)), sampling=SamplingParams(), max_tokens=200)
    deltas = run(engine, [request])["a"]
    assert tokens_of(deltas) == expected_output(request, model)[0]
    stats = engine.stats()
    assert len(deltas) < 110
    assert stats.accepted_tokens == 200 - len(deltas)
    assert sum(delta.accepted for delta in deltas) == stats.accepted_tokens <= stats.draft_tokens


@pytest.mark.parametrize("sequences", [1, 3, 8, 20, 40])
def test_the_rows_of_a_step_are_bounded_over_all_sequences(sequences: int) -> None:
    engine = EngineCore(Scheduler(config(kv_blocks=400)), ScriptedRunner(BLOCK, repeating(5)))
    runner = engine.runner
    assert isinstance(runner, ScriptedRunner)
    requests = [
        TokenRequest(id=str(k), prompt=list(range(k, k + 12)), sampling=SamplingParams(), max_tokens=30)
        for k in range(sequences)
    ]
    run(engine, requests)
    decoding = [step for step in runner.steps if all(start >= 12 for _, start, _, _ in step)]
    widest = max(sum(count for _, _, count, _ in step) for step in decoding)
    assert widest <= most_rows(sequences) <= DRAFT_ROWS
    assert engine.stats().draft_tokens > 0


@pytest.mark.parametrize("sequences", [2, 5, 16])
def test_drafts_beside_other_tenants_add_half_as_many_rows_at_most(sequences: int) -> None:
    """One stream that copies must not make the steps of everybody else two or three times as long."""
    engine = EngineCore(Scheduler(config(kv_blocks=400)), ScriptedRunner(BLOCK, repeating(5)))
    runner = engine.runner
    assert isinstance(runner, ScriptedRunner)
    requests = [
        TokenRequest(
            id=str(k), tenant=f"key {k % 2}", prompt=list(range(k, k + 12)), sampling=SamplingParams(), max_tokens=40
        )
        for k in range(sequences)
    ]
    run(engine, requests)
    steps = [step for step in runner.steps if all(start >= 12 for _, start, _, _ in step)]
    whole = [step for step in steps if len(step) == sequences]
    assert max(sum(count for _, _, count, _ in step) for step in whole) == sequences + max(sequences // 2, 1)


def test_a_full_cache_does_not_stop_drafts_that_need_no_block() -> None:
    scheduler = Scheduler(SchedulerConfig(kv_blocks=1, block_size=64))
    engine = EngineCore(scheduler, ScriptedRunner(64, repeating(5)))
    run(engine, [TokenRequest(id="a", prompt=list(range(20)), sampling=SamplingParams(), max_tokens=44)])
    assert engine.stats().accepted_tokens > 10


def test_a_drafted_stop_token_was_right_too() -> None:
    right = []
    for stop in range(30, 60):
        engine = EngineCore(Scheduler(config()), ScriptedRunner(BLOCK, repeating(30)))
        request = TokenRequest(
            id="a", prompt=list(range(60)), sampling=SamplingParams(), max_tokens=300, stop_ids=(stop,)
        )
        last = run(engine, [request])["a"][-1]
        right.append(last.accepted == len(last.tokens) > 0)
        assert last.accepted <= last.drafted
    assert any(right)


def test_nothing_is_drafted_while_prompts_are_computed() -> None:
    engine = EngineCore(Scheduler(config(step_tokens=8)), ScriptedRunner(BLOCK, repeating(5)))
    short = TokenRequest(id="a", prompt=list(range(8)), sampling=SamplingParams(), max_tokens=60)
    engine.add(short)
    engine.step()
    engine.add(msgspec.structs.replace(short, id="b", prompt=list(range(90)), max_tokens=1))
    for _ in range(10):
        engine.step()
    assert engine.stats().draft_tokens == 0
