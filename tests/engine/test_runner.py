"""The arrays that the runner gives to the native core."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.protocol import SamplingParams, TokenRequest
from millstream.engine.runner import NativeRunner, _BlockTables
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from millstream.scheduler.sequence import Sequence

VOCABULARY = 64
BLOCKS = 12
BLOCK_SIZE = 4


class Recorder:
    """In the place of the native model: keeps what a step was given, as lists, and samples by a rule."""

    threads = 1

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def step(self, *arguments: Any, hidden_rows: Any = None, hidden: Any = None, scores: Any = None) -> None:
        tokens, starts, positions, tables, rows, sampling, out = arguments
        pages = []
        for index, position in enumerate(positions):
            end = position + starts[index + 1] - starts[index]
            row = tables[index : index + 1].tolist()[0]
            pages.append(row[: -(-end // BLOCK_SIZE)])
            assert all(page == -1 for page in row[len(pages[-1]) + 4 :])
        self.seen.append((tokens.tolist(), starts.tolist(), positions.tolist(), pages, rows.tolist(), sampling.state()))
        for row, token in enumerate(rows):
            out["tokens"][row] = (tokens[token] + 3) % 6  # repeats, so drafts are made


class Sampling:
    """In the place of `SamplingBatch`: refers to the arrays, as that does."""

    def __init__(self, **arrays: Any) -> None:
        self._arrays = arrays

    def state(self) -> dict[str, list[float]]:
        return {name: array.tolist() for name, array in self._arrays.items()}


class Fresh:
    """Gives every step to a runner that has seen no other."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def execute(self, chunks: list[Chunk]) -> Sampled:
        sampled: Sampled = self._make().execute(chunks)
        return sampled


class LateConstraint:
    """Its mask takes a while."""

    finished = False
    error = None

    def __init__(self) -> None:
        self.written = False

    def mask(self, out: Any) -> None:
        time.sleep(0.05)
        self.written = True

    def forced(self) -> int | None:
        return None

    def advance(self, token: int) -> None:
        pass


requests = st.lists(
    st.builds(
        dict,
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=14),
        max_tokens=st.integers(1, 14),
        min_tokens=st.integers(0, 3),
        stop_ids=st.just([5]),
        sampling=st.builds(
            SamplingParams,
            temperature=st.sampled_from([0.0, 1.0]),
            seed=st.integers(0, 9),
            presence_penalty=st.sampled_from([0.0, 0.0, 0.5]),
            logit_bias=st.sampled_from([{}, {}, {3: 1.0}]),
            logprobs=st.sampled_from([None, None, 2]),
        ),
        at=st.integers(0, 12),
    ),
    min_size=1,
    max_size=5,
)


@given(requests)
def test_a_runner_with_a_past_gives_the_core_what_a_new_one_gives(wanted: list[dict[str, Any]]) -> None:
    """Sequences come, grow, are preempted for want of blocks, draft and end; steps that look alike share arrays."""
    recorders = Recorder(), Recorder()

    def make(recorder: Recorder) -> NativeRunner:
        return NativeRunner(
            recorder,  # type: ignore[arg-type]
            vocab_size=VOCABULARY,
            hidden_size=1,
            step_tokens=16,
            max_sequences=8,
            max_rows=16,
            max_blocks=BLOCKS,
        )

    with (
        patch("millstream.engine.runner.SampleOutput", dict),
        patch("millstream.engine.sampling.SamplingBatch", Sampling),
    ):
        for recorder, runner in ((recorders[0], make(recorders[0])), (recorders[1], Fresh(lambda: make(recorders[1])))):
            run(runner, wanted)
            assert recorder.seen
    assert recorders[0].seen == recorders[1].seen


def run(runner: Any, wanted: list[dict[str, Any]]) -> None:
    scheduler = Scheduler(
        SchedulerConfig(kv_blocks=BLOCKS, block_size=BLOCK_SIZE, step_tokens=16, max_sequences=8, step_seconds=1e9)
    )
    waiting = [
        (each["at"], TokenRequest(id=str(k), **{n: v for n, v in each.items() if n != "at"}))
        for k, each in enumerate(wanted)
    ]
    for at in range(200):
        for when, request in waiting:
            if when == at:
                scheduler.add(request)
        if at > 12 and not scheduler.has_work:
            return
        if chunks := scheduler.schedule():
            scheduler.commit(chunks, runner.execute(chunks))
    raise AssertionError("the sequences do not end")


def test_a_longer_answer_than_its_blocks_were_for() -> None:
    tables = _BlockTables(2, 4)
    blocks = [3]
    tables.write(0, blocks)
    blocks += [5, 7]
    tables.write(0, blocks)
    assert tables.array.tolist() == [[3, 5, 7, -1], [-1] * 4]
    tables.write(0, [9])
    assert tables.array.tolist()[0] == [9, -1, -1, -1]
    tables.write(0, [9, 1])
    assert tables.array.tolist()[0] == [9, 1, -1, -1]
    assert tables.array.format == "i"


@pytest.mark.parametrize("row", [0, 1])
def test_more_blocks_than_the_context_has_are_refused_and_harm_no_other_row(row: int) -> None:
    tables = _BlockTables(2, 2)
    neighbour = [7, 8]
    tables.write(1 - row, neighbour)
    blocks = [1, 2]
    tables.write(row, blocks)
    blocks.append(3)
    with pytest.raises(ValueError, match="needs 3 blocks, but the context has 2"):
        tables.write(row, blocks)
    with pytest.raises(ValueError, match="needs 4 blocks, but the context has 2"):
        tables.write(row, [4, 5, 6, 9])
    tables.write(1 - row, neighbour)
    assert tables.array.tolist()[1 - row] == [7, 8]
    tables.write(row, [9])
    assert tables.array.tolist()[row] == [9, -1]


@pytest.mark.parametrize("name", ["sampling.SamplingBatch", "runner.SampleOutput"])
def test_a_step_that_cannot_begin_leaves_no_mask_behind_that_is_still_written(name: str) -> None:
    """Its chunks are tried one by one after that: their masks would be written from two sides."""
    runner = NativeRunner(
        Recorder(),  # type: ignore[arg-type]
        vocab_size=VOCABULARY,
        hidden_size=1,
        step_tokens=4,
        max_sequences=1,
        max_rows=1,
        max_blocks=1,
    )
    constraint = LateConstraint()
    request = TokenRequest(id="1", prompt=[1], max_tokens=1, sampling=SamplingParams())
    sequence = Sequence(request, 1, constraint)
    sequence.blocks = [0]
    with patch(f"millstream.engine.{name}", side_effect=ValueError("no")), pytest.raises(ValueError, match="no"):
        runner.execute([Chunk(sequence, start=0, count=1, sample=True)])
    assert constraint.written
