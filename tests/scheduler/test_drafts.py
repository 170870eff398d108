"""Speculation: drafts of what is known, the same tokens with them as without."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.drafts import LONGEST_DRAFT, Drafter
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import DRAFT_ROWS, Scheduler
from support.scripted_runner import ScriptedRunner, expected_output, repeating

BLOCK = 4


def said(drafter: Drafter, tokens: list[int], more: list[int]) -> None:
    for token in more:
        tokens.append(token)
        drafter.extend()


def test_what_followed_the_same_words_is_drafted() -> None:
    drafter = Drafter([1, 2, 3, 4, 5, 6, 1, 2, 3])
    assert drafter.draft(2) == [4, 5]
    assert Drafter([1, 2, 3, 4, 5, 6, 7, 8]).draft(9) == []
    assert Drafter([1]).draft(9) == []


def test_the_latest_place_is_taken_and_kept_while_the_copy_holds() -> None:
    tokens = [1, 2, 3, 4, 9, 1, 2, 3, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter = Drafter(tokens)
    assert drafter.draft(9) == [5, 6]
    said(drafter, tokens, [5, 6])
    assert drafter.draft(9) == [7, 8]
    said(drafter, tokens, [0])
    assert drafter.draft(9) == []


def test_a_draft_that_holds_makes_the_next_one_longer_and_one_that_fails_shorter() -> None:
    tokens = [*range(60), 0, 1, 2]
    drafter = Drafter(tokens)
    lengths = []
    for _ in range(4):
        draft = drafter.draft(99)
        lengths.append(len(draft))
        said(drafter, tokens, draft)
        drafter.judge(len(draft), len(draft))
    assert lengths == [2, 4, 8, LONGEST_DRAFT]
    drafter.judge(LONGEST_DRAFT, 3)
    assert len(drafter.draft(99)) == 4


def test_drafts_that_fail_are_made_ever_more_rarely() -> None:
    """A text in which every run of words comes again, and goes on differently each time."""
    tokens: list[int] = []
    drafter = Drafter(tokens)
    tried = 0
    for step in range(1000):
        draft = drafter.draft(9)
        if draft:
            tried += len(draft)
            drafter.judge(len(draft), 0)
        said(drafter, tokens, [7, 7, 7, 1000 + step][step % 4 :][:1])
    assert tried < 30


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


@pytest.mark.parametrize("sequences", [1, 3, 8, 20])
def test_the_rows_of_a_step_are_bounded_over_all_sequences(sequences: int) -> None:
    engine = EngineCore(Scheduler(config(kv_blocks=400)), ScriptedRunner(BLOCK, repeating(5)))
    runner = engine.runner
    assert isinstance(runner, ScriptedRunner)
    requests = [
        TokenRequest(id=str(k), prompt=list(range(k, k + 12)), sampling=SamplingParams(), max_tokens=30)
        for k in range(sequences)
    ]
    run(engine, requests)
    widest = max(sum(count for _, _, count, _ in step) for step in runner.steps[2:])
    assert widest <= max(DRAFT_ROWS, sequences)
    assert (engine.stats().draft_tokens > 0) == (sequences <= DRAFT_ROWS // 2)


def test_nothing_is_drafted_while_prompts_are_computed() -> None:
    engine = EngineCore(Scheduler(config(step_tokens=8)), ScriptedRunner(BLOCK, repeating(5)))
    short = TokenRequest(id="a", prompt=list(range(8)), sampling=SamplingParams(), max_tokens=60)
    engine.add(short)
    engine.step()
    engine.add(msgspec.structs.replace(short, id="b", prompt=list(range(90)), max_tokens=1))
    for _ in range(10):
        engine.step()
    assert engine.stats().draft_tokens == 0
