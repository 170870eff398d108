from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.restarts import RestartPolicy, Supervision, Watchdog

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
    dog = Watchdog(10.0)
    silent = 0
    for tick in ticks:
        if tick == "heard":
            dog.heard()
            silent = 0
            continue
        silent = silent + 1 if tick == "busy" else 0
        assert dog.tick(busy=tick == "busy") == (silent * dog.interval > 10.0)
