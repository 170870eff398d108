"""The same bits in any company: 32 prompts on a real model through the real scheduler, whatever happens to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.engine.runner import NativeRunner
from millstream.models.loader import build_native, load_model_file
from millstream.models.spec import ModelSpec
from millstream.native import BLOCK_SIZE, Model
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import DRAFT_ROWS, Scheduler
from support.real_models import DEFAULT_MODEL, real_model

pytestmark = pytest.mark.slow

LENGTHS = (*range(1, 25), 28, 30, 31, 32, 60, 95, 130, 290)
"""Of prompts: within a page of 32 positions, about its end, over several pages, over a part of 256."""
NEW_TOKENS = 6
PROMPTS = len(LENGTHS)
BLOCKS = sum(-(-(length + NEW_TOKENS) // BLOCK_SIZE) + 1 for length in LENGTHS) + PROMPTS
MAX_TOKENS = 512

Result = list[tuple[int, float, tuple[int, ...], tuple[float, ...]]]
"""Of each new token: its id, its log probability, the best ids and theirs."""


class Loaded(NamedTuple):
    model: Model
    spec: ModelSpec


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    with load_model_file(real_model(DEFAULT_MODEL)) as file:
        yield Loaded(build_native(file, kv_blocks=BLOCKS, max_tokens=MAX_TOKENS, max_rows=PROMPTS), file.spec)


def core(loaded: Loaded, *, kv_blocks: int = BLOCKS, step_tokens: int = 256, prefix_cache: bool = False) -> EngineCore:
    scheduler = Scheduler(
        SchedulerConfig(
            kv_blocks=kv_blocks,
            block_size=BLOCK_SIZE,
            step_tokens=step_tokens,
            max_sequences=PROMPTS,
            prefix_cache=prefix_cache,
            step_seconds=1e9,  # prompts are cut by step_tokens alone
        )
    )
    runner = NativeRunner(
        loaded.model,
        vocab_size=loaded.spec.vocab_size,
        hidden_size=loaded.spec.hidden,
        step_tokens=step_tokens,
        max_sequences=PROMPTS,
        max_rows=max(PROMPTS, DRAFT_ROWS),
        max_blocks=BLOCKS,
    )
    return EngineCore(scheduler, runner, vocab_size=loaded.spec.vocab_size)


def requests() -> list[TokenRequest]:
    """Every second one is sampled, every fourth begins like the longest."""
    rng = random.Random(7)
    longest = [rng.randrange(1000, 40_000) for _ in range(max(LENGTHS))]
    made = []
    for index, length in enumerate(LENGTHS):
        own = [rng.randrange(1000, 40_000) for _ in range(length)]
        sampling = SamplingParams(temperature=float(index % 2), seed=index, logprobs=3)
        prompt = longest[:length] if index % 4 == 3 else own
        made.append(TokenRequest(str(index), prompt, sampling, NEW_TOKENS))
    return made


def play(engine: EngineCore, *asked: TokenRequest) -> list[Result]:
    for request in asked:
        engine.add(request)
    found = {request.id: Result() for request in asked}
    finish(engine, found)
    return list(found.values())


def finish(engine: EngineCore, found: dict[str, Result]) -> None:
    while engine.has_work:
        take(engine.step(), found)


def take(deltas: list[TokenDelta], found: dict[str, Result]) -> None:
    for delta in deltas:
        assert delta.error is None
        found[delta.id] += [
            (token, entry.logprob, tuple(entry.top_ids), tuple(entry.top_logprobs))
            for token, entry in zip(delta.tokens, delta.logprobs, strict=True)
        ]


@pytest.fixture(scope="module")
def alone(loaded: Loaded) -> list[Result]:
    return [result for request in requests() for result in play(core(loaded), request)]


def test_prompts_differ(alone: list[Result]) -> None:
    assert all(len(result) == NEW_TOKENS for result in alone)
    assert len({result[0] for result in alone}) == PROMPTS


@pytest.mark.parametrize("step_tokens", [16, pytest.param(64, marks=pytest.mark.thorough), MAX_TOKENS])
def test_all_together_in_chunks(loaded: Loaded, alone: list[Result], step_tokens: int) -> None:
    assert play(core(loaded, step_tokens=step_tokens), *requests()) == alone


def test_after_preemption(loaded: Loaded, alone: list[Result]) -> None:
    """Sequences of a better class come and take the few blocks that there are, in the midst of prompts and answers."""
    engine = core(loaded, kv_blocks=24)
    asked = requests()
    for request in asked[::2]:
        engine.add(msgspec.structs.replace(request, priority=1))
    found = {request.id: Result() for request in asked}
    for request in asked[1::2]:
        take(engine.step(), found)
        engine.add(request)
    finish(engine, found)
    assert engine.stats().preemptions > 1
    assert list(found.values()) == alone


def test_after_hits_in_the_prefix_cache(loaded: Loaded, alone: list[Result]) -> None:
    engine = core(loaded, prefix_cache=True)
    assert play(engine, *requests()) == alone
    before = engine.stats().cached_tokens
    assert play(engine, *requests()) == alone
    assert engine.stats().cached_tokens - before >= sum((length - 1) // BLOCK_SIZE * BLOCK_SIZE for length in LENGTHS)
