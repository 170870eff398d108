"""Grammars in the engine: a model of random weights writes what they say, in any company, preempted and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from millstream.engine.config import EngineConfig
from millstream.engine.constraints import FileConstraints
from millstream.engine.core import EngineCore
from millstream.engine.loading import load_core
from millstream.engine.protocol import SamplingParams, ThinkingBudget, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler
from support.scripted_runner import ScriptedRunner
from support.tiny_models import END_OF_TEXT, IM_END, build_tiny_model, special_id

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"enum": ["small", "large"]},
        "tags": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
GRAMMAR = json.dumps({"grammars": [{"json_schema": SCHEMA}]})
EOS = special_id(IM_END)
STOPS = (special_id(END_OF_TEXT), EOS)
X = ord("x")  # the vocabulary begins with the bytes


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="module")
def core(path: Path) -> EngineCore:
    """Room for 320 tokens: less than the sequences below want together."""
    config = EngineConfig(model_path=str(path), model_name="tiny", kv_bytes=320 * 3 * 2 * 32 * 2, threads=1)
    return load_core(config)[0]


def ask(name: str, *, seed: int = 0, grammar: str | None = GRAMMAR, max_tokens: int = 100, **how: Any) -> TokenRequest:
    params = SamplingParams(temperature=1.0, seed=seed, logprobs=how.pop("logprobs", None))
    how = {"stop_ids": STOPS, **how}
    return TokenRequest(name, list(range(65, 75)), params, max_tokens, grammar=grammar, **how)


def play(core: EngineCore, *requests: TokenRequest) -> dict[str, list[TokenDelta]]:
    for request in requests:
        core.add(request)
    deltas: dict[str, list[TokenDelta]] = {request.id: [] for request in requests}
    while core.has_work:
        for delta in core.step():
            deltas[delta.id].append(delta)
    return deltas


def tokens(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.tokens]


def text(path: Path, ids: list[int]) -> str:
    from millstream.models.gguf import GGUFFile
    from millstream.models.vocabulary import load_token_bytes

    with GGUFFile(path) as file:
        pieces = load_token_bytes(file)[1]
    return b"".join(pieces[token_id] for token_id in ids if token_id not in STOPS).decode()


@pytest.mark.parametrize("seed", range(4))
def test_noise_becomes_what_the_schema_says(core: EngineCore, path: Path, seed: int) -> None:
    deltas = play(core, ask("a", seed=seed))["a"]
    answer = json.loads(text(path, tokens(deltas)))
    assert list(answer) == ["name", "size", "tags"]
    assert len(answer["name"]) <= 8
    assert answer["size"] in ("small", "large")
    assert all(0 <= tag <= 99 for tag in answer["tags"])
    assert deltas[-1].finish == "stop"


def test_company_preemption_and_other_grammars_change_nothing(core: EngineCore) -> None:
    requests = [ask(f"d{seed}", seed=seed, grammar=lark(r"start: /[0-9]{90}/")) for seed in range(4)]
    requests += [ask(f"s{seed}", seed=seed) for seed in range(3)]
    requests.append(ask("free", seed=9, grammar=None))
    alone = {request.id: tokens(play(core, request)[request.id]) for request in requests}
    before = core.stats().preemptions
    together = play(core, *requests)
    assert core.stats().preemptions > before
    assert {name: tokens(deltas) for name, deltas in together.items()} == alone


def test_an_answer_is_resumed_where_it_was_left(core: EngineCore) -> None:
    whole = tokens(play(core, ask("a", seed=2))["a"])
    for at in (1, 7, len(whole) - 1):
        rest = tokens(play(core, ask("a", seed=2, output=whole[:at]))["a"])
        assert whole[:at] + rest == whole


def test_the_end_of_turn_comes_only_where_the_text_may_end(core: EngineCore) -> None:
    some = play(core, ask("a", grammar=lark(r"start: /x{3,}/"), max_tokens=200))["a"]
    ids = tokens(some)
    assert (ids[:3], some[-1].finish) == ([X, X, X], "stop")
    assert ids[-1] in STOPS
    exact = play(core, ask("a", grammar=lark('start: "xxx"')))["a"]
    assert (tokens(exact), exact[-1].finish) == ([X, X, X], "stop")
    cut = play(core, ask("a", grammar=lark('start: "xxx"'), max_tokens=2))["a"]
    assert (tokens(cut), cut[-1].finish) == ([X, X], "length")


def test_ignored_ends_and_least_lengths_do_not_go_beyond_the_grammar(core: EngineCore) -> None:
    for how in ({"stop_ids": ()}, {"min_tokens": 50}):
        deltas = play(core, ask("a", grammar=lark('start: "xxx"'), **how))["a"]
        assert (tokens(deltas), deltas[-1].finish) == ([X, X, X], "stop")


def test_log_probabilities_are_the_models_own(core: EngineCore) -> None:
    deltas = play(core, ask("a", grammar=lark('start: "xxx"'), logprobs=5))["a"]
    entry = deltas[0].logprobs[0]
    assert entry.logprob < 0
    assert len(entry.top_ids) == 5


def test_a_grammar_that_does_not_compile_ends_its_sequence_alone(core: EngineCore) -> None:
    deltas = play(core, ask("bad", grammar="{"), ask("good", grammar=lark('start: "x"')))
    assert deltas["bad"][-1].finish == "error"
    assert deltas["bad"][-1].error
    assert tokens(deltas["good"]) == [X]


def test_a_grammar_that_goes_over_a_limit_ends_its_sequence_alone(core: EngineCore) -> None:
    look_back = lark(r"start: /(?s:.)*a(?s:.){5000}/")
    deltas = play(core, ask("bad", grammar=look_back, max_tokens=300), ask("good", grammar=lark('start: "x"')))
    assert tokens(deltas["good"]) == [X]
    last = deltas["bad"][-1]
    assert last.finish == "length" or (last.finish == "error" and "went over a limit" in str(last.error))


def lark(grammar: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": grammar}]})


def test_an_engine_without_grammars_says_so() -> None:
    core = EngineCore(Scheduler(SchedulerConfig(kv_blocks=64, block_size=4)), ScriptedRunner(4))
    (delta,) = play(core, ask("a"))["a"]
    assert (delta.finish, delta.error) == ("error", "this engine has no grammars")


def test_a_model_file_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read any more"):
        FileConstraints(str(tmp_path / "gone.gguf"))(ask("a", grammar="{}"))


class Nothing:
    """A constraint that allows nothing."""

    finished = False
    error = "too many states"

    def mask(self, out: NDArray[np.uint32]) -> None:
        out.fill(0)

    def forced(self) -> int | None:
        return None

    def advance(self, token: int) -> None:
        raise AssertionError("nothing can have been sampled")


def test_no_allowed_token_is_an_error_with_the_reason(core: EngineCore) -> None:
    core.scheduler.add(ask("a"), Nothing())
    (delta,) = core.step()
    assert delta.finish == "error"
    assert "went over a limit (too many states)" in str(delta.error)


OPEN, CLOSE = "<t>", "</t>"
ENDING = [ord(char) for char in CLOSE]


def thinking(limit: int, *, opened: bool = True) -> ThinkingBudget:
    return ThinkingBudget(limit, CLOSE, ENDING, "" if opened else OPEN)


def test_reasoning_ends_with_its_budget(core: EngineCore, path: Path) -> None:
    free = tokens(play(core, ask("a", seed=3, grammar=None, stop_ids=(), max_tokens=40))["a"])
    held = tokens(play(core, ask("a", seed=3, grammar=None, stop_ids=(), max_tokens=40, thinking=thinking(10)))["a"])
    at = next(at for at in range(len(held)) if held[at : at + 4] == ENDING)
    assert 10 <= at <= 13  # up to three tokens more, for the rest of a character
    assert held[:at] == free[:at]
    assert len(held) == 40


def test_a_grammar_goes_on_behind_reasoning_that_was_ended(core: EngineCore, path: Path) -> None:
    grammar = lark('start: thoughts "yes"\nthoughts[lazy]: /(?s:.*)/ "</t>"')
    ids = tokens(play(core, ask("a", grammar=grammar, thinking=thinking(5)))["a"])
    assert text(path, ids).endswith("</t>yes")
    assert len(ids) <= 5 + 3 + len("</t>yes")


def test_a_budget_depends_on_the_output_alone(core: EngineCore) -> None:
    requests = [
        ask(f"t{seed}", seed=seed, grammar=None, stop_ids=(), max_tokens=90, thinking=thinking(20 + seed))
        for seed in range(4)
    ]
    alone = {request.id: tokens(play(core, request)[request.id]) for request in requests}
    before = core.stats().preemptions
    together = play(core, *requests)
    assert core.stats().preemptions > before
    assert {name: tokens(deltas) for name, deltas in together.items()} == alone
    whole = alone["t0"]
    for at in (1, 19, 20, 21, 22, 23, 24, 60):
        rest = play(core, msgspec.structs.replace(requests[0], output=whole[:at]))["t0"]
        assert whole[:at] + tokens(rest) == whole
