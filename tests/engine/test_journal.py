"""The journal against the real scheduler: whatever crashes, readers see each token once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.journal import CLEARING_TOKENS, Journal
from millstream.engine.protocol import SamplingParams, SequenceView, TokenAlternatives, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler
from support.scripted_runner import ScriptedRunner, expected_output, expected_scores


def request(name: str, max_tokens: int = 40, prompt: int = 6, scores: int | None = None) -> TokenRequest:
    return TokenRequest(
        id=name,
        prompt=[*range(prompt), ord(name[-1])],
        sampling=SamplingParams(),
        max_tokens=max_tokens,
        prompt_logprobs=scores,
    )


class Engine:
    """An engine that can be crashed, with what the readers have seen."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.seen: dict[str, list[TokenDelta]] = {}
        self.given_up: list[str] = []
        self.batches: list[list[str]] = []
        self._boot()

    def _boot(self) -> None:
        self.core = EngineCore(
            Scheduler(SchedulerConfig(kv_blocks=24, block_size=4, step_tokens=8, max_sequences=4)), ScriptedRunner(4)
        )

    def ask(self, request: TokenRequest) -> None:
        self.journal.add(request)
        self.seen[request.id] = []

    def leave(self, name: str) -> None:
        if self.journal.remove(name):
            self.core.abort(name)

    def step(self, *, lost: bool = False) -> None:
        """One step; ``lost``: the process dies before its result arrives."""
        for each in self.journal.due():
            self.core.add(each)
            self.journal.accepted(each.id)
        deltas = self.core.step(self._starting)
        for delta in [] if lost else deltas:
            shown = self.journal.record(delta)
            if shown is not None:
                self.seen[delta.id].append(shown)

    def _starting(self, batch: list[str], tokens: int) -> None:
        self.batches.append(batch)
        self.journal.batch(batch)

    def crash(self) -> None:
        self.given_up += self.journal.crashed()
        self._boot()

    def finish(self) -> None:
        for _ in range(2000):
            if not len(self.journal):
                return
            self.step()
        raise AssertionError("requests do not end")

    def answer(self, name: str) -> tuple[list[int], str | None]:
        deltas = self.seen[name]
        return [token for delta in deltas for token in delta.tokens], deltas[-1].finish

    def scores(self, name: str) -> list[TokenAlternatives]:
        return [score for delta in self.seen[name] for score in delta.prompt_logprobs]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 30)),
        st.tuples(st.just("step"), st.integers(1, 12)),
        st.tuples(st.just("leave"), st.integers(0, 8)),
        st.tuples(st.just("crash"), st.booleans()),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS)
def test_readers_see_each_token_once_whatever_crashes(actions: list[tuple[str, int]]) -> None:
    engine = Engine()
    asked: dict[str, TokenRequest] = {}
    left = set()
    crashes = 0
    for action, number in actions:
        if action == "ask":
            name = f"r{chr(97 + len(asked) % 26)}{len(asked)}"
            scores = (None, 0, 2)[number % 3]
            asked[name] = request(name, number if scores is None or number > 9 else 0, prompt=number, scores=scores)
            engine.ask(asked[name])
        elif action == "step":
            for _ in range(number):
                engine.step()
        elif action == "leave" and number < len(asked):
            left.add(list(asked)[number])
            engine.leave(list(asked)[number])
        elif action == "crash" and crashes < 2:
            crashes += 1
            engine.step(lost=bool(number))
            engine.crash()
    engine.finish()
    assert engine.given_up == []
    for name in asked.keys() - left:
        assert engine.answer(name) == expected_output(asked[name])
        deltas = engine.seen[name]
        assert len({delta.cached_tokens for delta in deltas}) == 1
        assert engine.scores(name) == expected_scores(asked[name])
        assert all(each.tokens or each.prompt_logprobs or each.finish for each in deltas[1:]), "prefill is told once"


def test_the_cause_is_found_among_others_and_the_others_go_on() -> None:
    engine = Engine()
    names = ["a", "b", "poison", "c"]
    for name in names:
        engine.ask(request(name))
    while len(engine.journal):
        engine.step()
        if "poison" in engine.batches[-1]:
            engine.crash()
    assert engine.given_up == ["poison"]
    for name in ("a", "b", "c"):
        assert engine.answer(name) == expected_output(request(name))


def test_suspects_run_one_by_one_until_they_are_cleared() -> None:
    engine = Engine()
    for name in "abc":
        engine.ask(request(name))
    for _ in range(2):
        for _ in range(6):
            engine.step()
        engine.crash()
    engine.ask(request("new"))
    engine.batches.clear()
    engine.finish()
    first_of = {
        name: next(i for i, batch in enumerate(engine.batches) if name in batch) for name in ("a", "b", "c", "new")
    }
    assert first_of["a"] < first_of["b"] < first_of["c"] < first_of["new"]
    assert first_of["b"] - first_of["a"] >= CLEARING_TOKENS
    assert all(engine.answer(name) == expected_output(request(name)) for name in ("a", "b", "c", "new"))


def test_whoever_gets_far_between_two_crashes_is_not_suspected() -> None:
    engine = Engine()
    engine.ask(request("a", max_tokens=80))
    for crash in range(1, 5):
        while sum(len(delta.tokens) for delta in engine.seen["a"]) < crash * (CLEARING_TOKENS + 1):
            engine.step()
        engine.step(lost=True)
        engine.crash()
    engine.finish()
    assert engine.given_up == []
    assert engine.answer("a") == expected_output(request("a", max_tokens=80))


def test_a_crash_while_a_request_is_taken_is_blamed_on_it() -> None:
    journal = Journal()
    journal.add(request("a"))
    given_up: list[str] = []
    for _ in range(3):
        assert [each.id for each in journal.due()] == ["a"]
        given_up += journal.crashed()
    assert given_up == ["a"]
    assert not len(journal)


@pytest.mark.parametrize("leave_at", [0, 3])
def test_a_suspect_that_leaves_makes_room_for_the_next(leave_at: int) -> None:
    engine = Engine()
    for name in "ab":
        engine.ask(request(name))
    for _ in range(2):
        for _ in range(5):
            engine.step()
        engine.crash()
    for _ in range(leave_at):
        engine.step()
    engine.leave("a")
    engine.finish()
    assert engine.answer("b") == expected_output(request("b"))


def test_a_paused_request_is_resumed_by_its_reader_and_not_by_a_restart() -> None:
    journal = Journal()
    for name in ("a", "b"):
        journal.add(request(name))
    assert [each.id for each in journal.due()] == ["a", "b"]
    assert journal.pause("a", "paused_reader") == "pause"
    journal.crashed()
    assert (journal.kept_back, journal.busy) == (1, False)
    assert journal.waits(up=True) == {"paused_reader": 1, "suspected": 1}
    assert journal.waits(up=False) == {"paused_reader": 1, "engine_restart": 1}
    assert [each.id for each in journal.due()] == ["b"]
    assert not journal.resume("a", "paused_reader")
    assert [each.id for each in journal.due()] == ["a"]
    assert journal.pause("a", "paused_reader") == "pause"
    assert journal.resume("a", "paused_reader")
    assert (journal.kept_back, journal.waits(up=True), journal.busy) == (0, {}, True)


def test_a_suspect_whose_reader_stops_does_not_hold_up_the_others() -> None:
    journal = Journal()
    for name in ("a", "b"):
        journal.add(request(name))
    for _ in range(2):
        names = [each.id for each in journal.due()]
        journal.batch(["a"])
        for name in names:
            journal.accepted(name)
        journal.crashed()
    assert [each.id for each in journal.due()] == ["a"]
    assert journal.pause("a", "paused_reader") == "abort"
    assert [each.id for each in journal.due()] == ["b"]
    assert not journal.resume("a", "paused_reader")
    assert [each.id for each in journal.due()] == ["a"]


def test_pausing_what_waits_and_leaving_while_paused() -> None:
    journal = Journal()
    journal.add(request("a"))
    assert journal.pause("a", "paused_reader") is None
    assert list(journal.due()) == []
    assert not journal.remove("a")
    assert (len(journal), journal.kept_back, journal.waits(up=True)) == (0, 0, {})


def test_a_request_that_rests_for_two_reasons_goes_on_after_both() -> None:
    journal = Journal()
    journal.add(request("a"))
    assert [each.id for each in journal.due()] == ["a"]
    assert journal.pause("a", "paused_reader") == "pause"
    assert journal.pause("a", "held") == "pause"
    assert journal.resume("a", "paused_reader")
    assert not journal.busy
    journal.crashed()
    assert list(journal.due()) == []
    assert journal.views([], up=True) == [SequenceView("a", "paused", "held")]
    assert not journal.resume("a", "held")
    assert [each.id for each in journal.due()] == ["a"]


def test_a_class_is_kept_over_restarts_and_unknown_sequences_are_told_of() -> None:
    journal = Journal()
    for name in ("a", "b"):
        journal.add(request(name))
    assert not journal.reprioritise("a", 3)
    assert [(each.id, each.priority) for each in journal.due()] == [("a", 3), ("b", 0)]
    assert journal.reprioritise("b", -2)
    journal.record(TokenDelta("b", [1, 2]))
    journal.crashed()
    assert journal.views([], up=False) == [
        SequenceView("a", "queued", "engine_restart"),
        SequenceView("b", "queued", "engine_restart", generated=2),
    ]
    assert [(each.id, each.priority) for each in journal.due()] == [("a", 3), ("b", -2)]
    told = SequenceView("b", "decode", None, 7, 2)
    assert journal.views([told], up=True) == [SequenceView("a", "queued"), told]
