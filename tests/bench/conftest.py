from __future__ import annotations

import time

import pytest

from bench.steady import Clock, SteadyRunner
from millstream.engine.core import EngineCore
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> SteadyRunner:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return SteadyRunner(clock)


@pytest.fixture
def core(runner: SteadyRunner) -> EngineCore:
    """At most 64 tokens a step, 32 sequences."""
    config = SchedulerConfig(kv_blocks=400, block_size=32, step_tokens=64, max_sequences=32, prefix_cache=False)
    # Steps of no length: what a busy machine takes for them must not change how much is in one.
    return EngineCore(Scheduler(config), runner, clock=lambda: 0.0)
