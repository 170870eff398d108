import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.restarts import RestartPolicy, StepTimes, Supervision, Watchdog
from millstream.engine.vitals import Vitals, share_of_time, vitals
from support.waiting import wait_until

SUPERVISION = Supervision(start_failures=4, first_delay=1.0, longest_delay=3.0, settled=5.0)


def test_a_process_that_worked_is_replaced_at_once() -> None:
    policy = RestartPolicy(SUPERVISION)
    for _ in range(20):
        policy.ended(ready_seconds=0.1, worked=True)
        assert policy.delay == 0
        assert not policy.exhausted


def test_failed_starts_are_spaced_out_and_limited() -> None:
    policy = RestartPolicy(SUPERVISION)
    delays = []
    while not policy.exhausted:
        delays.append(policy.delay)
        policy.start_failed()
    assert delays == [0, 1, 2, 3]


def test_a_process_that_dies_idle_right_after_its_start_has_failed() -> None:
    policy = RestartPolicy(SUPERVISION)
    for _ in range(4):
        policy.ended(ready_seconds=0.1, worked=False)
    assert policy.exhausted


def test_a_process_that_was_ready_for_a_while_ends_the_row() -> None:
    policy = RestartPolicy(SUPERVISION)
    for _ in range(3):
        policy.start_failed()
    policy.ended(ready_seconds=6.0, worked=False)
    assert policy.delay == 0


@given(st.lists(st.sampled_from(["heard", "busy", "idle"]), max_size=200))
def test_only_silence_with_work_is_a_hang(ticks: list[str]) -> None:
    dog = Watchdog(SUPERVISION)
    silent = 0
    for tick in ticks:
        if tick == "heard":
            dog.heard()
            silent = 0
            continue
        silent = silent + 1 if tick == "busy" else 0
        assert dog.tick(busy=tick == "busy", deadline=10.0) == (silent * dog.interval > 10.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=400))
def test_an_engine_that_is_kept_from_running_is_given_more_time_up_to_a_limit(shares: list[float]) -> None:
    dog = Watchdog(Supervision(step_deadline=20.0, step_floor=20.0, starved_deadline=100.0))
    ran = silent = 0.0
    for share in shares:
        ran += share * dog.interval
        silent += dog.interval
        hung = dog.tick(busy=True, deadline=20.0, share=share)
        if abs(ran - 20.0) > 1e-6 and silent != 100.0:
            assert hung == (ran > 20.0 or silent > 100.0)


def test_what_is_no_sign_of_starvation() -> None:
    idle, queued = Vitals(5.0, wants_to_run=False), Vitals(5.0, wants_to_run=True)
    assert share_of_time(idle, idle, 1.0) == 1.0  # it sleeps, or was stopped: nothing keeps it but itself
    assert share_of_time(queued, queued, 1.0) == 0.0
    assert share_of_time(queued, Vitals(5.25, wants_to_run=True), 1.0) == 0.25
    assert share_of_time(queued, Vitals(9.0, wants_to_run=True), 1.0) == 1.0  # several threads, or a loop without end
    assert share_of_time(None, queued, 1.0) == 1.0
    assert share_of_time(queued, None, 1.0) == 1.0


def until_it_rests(pid: int) -> None:
    """Wait until no thread of a process wants to run; fails if one always does."""
    wait_until(lambda: (seen := vitals(pid)) is not None and not seen.wants_to_run)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_process_is_looked_at_in_proc() -> None:
    mine = vitals(os.getpid())
    assert mine is not None
    assert mine.wants_to_run  # it is running this
    assert 0 < mine.cpu_seconds <= time.process_time() + 0.1
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        os.kill(other.pid, signal.SIGSTOP)
        until_it_rests(other.pid)
        other.kill()
    assert vitals(other.pid) is None


BESIDE = """
import threading
from millstream.engine.vitals import leave_vitals

def answer():
    leave_vitals()
    print(flush=True)
    while True:
        pass

threading.Thread(target=answer, daemon=True).start()
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_thread_that_only_answers_is_no_sign_of_starvation() -> None:
    """It runs, or waits for a processor, whenever the engine is asked, also if the thread that steps hangs."""
    with subprocess.Popen([sys.executable, "-c", BESIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        until_it_rests(other.pid)  # the main thread may be on its way to `input`
        other.kill()


def test_a_step_is_judged_by_those_before_it_within_bounds() -> None:
    times = StepTimes(Supervision(step_deadline=60.0, step_floor=10.0))
    for _ in range(StepTimes.LEAST_STEPS):
        assert times.deadline(1) == 60.0  # nothing is known yet
        times.ran(100, 1.0)
    assert times.deadline(1) == 10.0
    assert times.deadline(200) == 40.0
    assert times.deadline(5000) == 60.0


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0.001, 30)), min_size=16, max_size=60), st.integers(0, 300))
def test_no_step_like_the_last_one_is_taken_for_a_hang(steps: list[tuple[int, float]], tokens: int) -> None:
    times = StepTimes(Supervision(step_deadline=1e9))
    for each in steps:
        times.ran(*each)
    count, seconds = steps[-1]
    assert times.deadline(count) >= StepTimes.MARGIN * seconds * 0.999
    assert times.deadline(tokens) <= times.deadline(tokens + 1)
