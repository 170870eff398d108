"""What the figures mean: with a step of exactly one second they can be worked out by hand."""

from __future__ import annotations

import pytest

from bench.steady import SteadyRunner
from millstream.bench.engine import measure_overhead, run_plan, run_together
from millstream.bench.errors import BenchError
from millstream.bench.plan import Case, Plan
from millstream.engine.core import EngineCore


def test_prefill_is_prompt_tokens_until_the_first_new_one(core: EngineCore) -> None:
    """160 tokens at 64 a step are three steps."""
    result = run_plan(core, Plan([Case("pp", "prefill", 1, [[[5] * 160], [[5] * 64]])]))
    assert result.rates == {"pp": [pytest.approx(160 / 3), pytest.approx(64.0)]}


def test_decode_counts_from_when_every_sequence_has_a_token(core: EngineCore) -> None:
    """Two prompts of 63 tokens, 64 a step. The first step gives the first sequence a token and starts the second; after
    the second step they have 2 and 1. Then both make tokens until the first has 10; the second makes its last alone."""
    timing = run_together(core, [[5] * 63, [5] * 63], 10)
    assert [len(tokens) for tokens in timing.tokens] == [10, 10]
    assert timing.first == 2.0
    assert timing.end == 11.0
    assert timing.tokens_after_first == 20 - 3
    result = run_plan(core, Plan([Case("tg", "decode", 10, [[[5] * 63, [5] * 63]])]))
    assert result.rates == {"tg": [pytest.approx(17 / 9)]}


def test_check_reports_tokens_and_no_rate(core: EngineCore) -> None:
    stages: list[str] = []
    plan = Plan([Case("check", "check", 5, [[[1, 2, 3]]]), Case("pp", "prefill", 1, [[[1]]])])
    result = run_plan(core, plan, on_case=stages.append)
    assert result.check_ids == [7] * 5
    assert list(result.rates) == ["pp"]
    assert stages == ["check", "pp"]


def test_samples_leave_nothing_behind(core: EngineCore, runner: SteadyRunner) -> None:
    """A prompt that was run before costs as many steps as the first time."""
    prompt = [3] * 128
    for expected in (2, 4):
        run_together(core, [prompt], 1)
        assert runner.steps == expected
    assert not core.has_work


def test_overhead_is_what_the_native_call_does_not_take(core: EngineCore, runner: SteadyRunner) -> None:
    overhead = measure_overhead(core, [[1] * 40 for _ in range(16)], steps=20)
    assert overhead.python_share == pytest.approx(0.25)
    assert overhead.step_seconds == pytest.approx(1.0)
    assert overhead.sequences == 16
    assert not core.has_work


def test_a_refused_sample_is_an_error_with_its_reason(core: EngineCore, runner: SteadyRunner) -> None:
    with pytest.raises(BenchError, match="refused"):
        run_together(core, [[1] * 20_000], 4)
    runner.refuses = True
    with pytest.raises(BenchError, match="outside the vocabulary"):
        run_together(core, [[1]], 4)
    with pytest.raises(BenchError, match="outside the vocabulary"):
        measure_overhead(core, [[1]])
