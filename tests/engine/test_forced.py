"""Forced tokens on the native core: the answers are those of plain masked decoding, bit for bit."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from millstream.engine import masks
from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore
from millstream.engine.loading import load_core
from millstream.engine.protocol import SamplingParams, ThinkingBudget, TokenDelta, TokenRequest
from support.tiny_models import END_OF_TEXT, IM_END, build_tiny_model, special_id

STOPS = (special_id(END_OF_TEXT), special_id(IM_END))
SAMPLING = [
    SamplingParams(temperature=0.0),
    SamplingParams(seed=7),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=3),
    SamplingParams(temperature=0.7, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, seed=5),
    SamplingParams(temperature=0.9, logit_bias={ord("e"): 3.0, ord("t"): -100.0, ord("n"): -1.0}, seed=11),
]
CLOSE = "</t>"

words = st.text('thein rá"_', min_size=1, max_size=12)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Objects with required names, constants, choices that begin alike, and some freedom."""
    value = st.one_of(
        st.builds(lambda const: {"const": const}, words),
        st.builds(
            lambda stem, tails: {"enum": [stem + tail for tail in tails]}, words, st.sets(words, min_size=2, max_size=3)
        ),
        st.just({"type": "boolean"}),
        st.just({"type": "string", "maxLength": 4}),
        st.just({"type": "integer", "minimum": 100, "maximum": 120}),
    )
    names = draw(st.lists(words, min_size=1, max_size=4, unique=True))
    return {
        "type": "object",
        "properties": {name: draw(value) for name in names},
        "required": names,
        "additionalProperties": False,
        "x-guidance": {"whitespace_pattern": draw(st.sampled_from(["", " ?", "[ \n]{0,3}"]))},
    }


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> EngineCore:
    path: Path = build_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    config = EngineConfig(model_path=str(path), model_name="tiny", kv_bytes=960 * 3 * 2 * 32 * 2, step_tokens=48)
    return load_core(config)[0]


def play(core: EngineCore, requests: list[TokenRequest]) -> dict[str, tuple[list[int], str | None, str | None]]:
    found: dict[str, list[TokenDelta]] = {request.id: [] for request in requests}
    for request in requests:
        core.add(request)
    while core.has_work:
        for delta in core.step():
            found[delta.id].append(delta)
    return {
        name: ([token for delta in deltas for token in delta.tokens], deltas[-1].finish, deltas[-1].error)
        for name, deltas in found.items()
    }


def of(schema: dict[str, Any], before: str = "") -> str:
    if not before:
        return json.dumps({"grammars": [{"json_schema": schema}]})
    lark = f'start: thoughts @answer\nthoughts[lazy]: /(?s:.*)/ "{before}"'
    return json.dumps({"grammars": [{"lark_grammar": lark}, {"name": "answer", "json_schema": schema}]})


@settings(max_examples=40, deadline=None)
@given(st.lists(schemas(), min_size=1, max_size=4), st.data())
def test_answers_are_those_of_plain_decoding(
    core: EngineCore, found: list[dict[str, Any]], data: st.DataObject
) -> None:
    requests = []
    for k, schema in enumerate(found):
        budget = data.draw(st.none() | st.integers(0, 9))
        requests.append(
            TokenRequest(
                id=str(k),
                prompt=[65 + (3 * k + j) % 50 for j in range(data.draw(st.integers(1, 20)))],
                sampling=data.draw(st.sampled_from(SAMPLING)),
                max_tokens=data.draw(st.integers(1, 120)),
                min_tokens=data.draw(st.sampled_from([0, 0, 30])),
                stop_ids=(*STOPS, *data.draw(st.lists(st.sampled_from([ord("h"), ord(":")]), max_size=1))),
                choice=k,
                grammar=of(schema, "" if budget is None else CLOSE),
                thinking=None if budget is None else ThinkingBudget(budget, CLOSE, list(CLOSE.encode())),
            )
        )
    alone: dict[str, tuple[list[int], str | None, str | None]] = {}
    for request in requests:
        alone |= play(core, [replace(request, speculation=False)])
    assert play(core, requests) == alone
    cut = {request.id: data.draw(st.integers(0, max(len(alone[request.id][0]) - 1, 0))) for request in requests}
    resumed = play(core, [replace(request, output=alone[request.id][0][: cut[request.id]]) for request in requests])
    for name, (tokens, *end) in resumed.items():
        assert alone[name] == (alone[name][0][: cut[name]] + tokens, *end)
    assert core.stats().kv_blocks_used == 0


def test_names_of_a_schema_are_forced(core: EngineCore) -> None:
    schema = {
        "type": "object",
        "properties": {"identifier": {"type": "boolean"}, "description": {"type": "boolean"}},
        "required": ["identifier", "description"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    request = TokenRequest("a", [1, 2, 3], SamplingParams(), 100, grammar=of(schema), stop_ids=STOPS)
    before = core.stats()
    tokens, finish, _ = play(core, [request])["a"]
    after = core.stats()
    assert finish == "stop"
    forced, steps = after.forced_tokens - before.forced_tokens, after.steps - before.steps
    assert forced > len(tokens) * 0.6
    assert steps < len(tokens) / 3
    before = after
    scored = replace(request, sampling=SamplingParams(logprobs=1))
    assert play(core, [scored])["a"][0] == tokens
    assert core.stats().forced_tokens == before.forced_tokens


def test_a_mask_that_never_comes_ends_its_sequence_alone(core: EngineCore, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()

    class Stuck:
        finished = False
        error = None

        def mask(self, out: NDArray[np.uint32]) -> None:
            waiting.wait()

        def forced(self) -> int | None:
            return None

        def advance(self, token: int) -> None:
            raise AssertionError("nothing can have been sampled")

    monkeypatch.setattr(core.runner._masks._threads, "_patience", 0.1)  # type: ignore[attr-defined]
    schema = {"enum": ["one", "two"]}
    good = [
        TokenRequest("free", [1, 2], SamplingParams(seed=1), 20),
        TokenRequest("held", [3, 4], SamplingParams(seed=2), 20, grammar=of(schema), stop_ids=STOPS),
    ]
    undisturbed = play(core, good)
    try:
        core.scheduler.add(TokenRequest("stuck", [5, 6], SamplingParams(), 20), Stuck())
        found: dict[str, list[TokenDelta]] = {"stuck": []}
        for request in good:
            core.add(request)
            found[request.id] = []
        while core.has_work:
            for delta in core.step():
                found[delta.id].append(delta)
    finally:
        waiting.set()
    assert found["stuck"][-1].finish == "error"
    assert "took too long" in str(found["stuck"][-1].error)
    for name, (tokens, finish, _) in undisturbed.items():
        assert [token for delta in found[name] for token in delta.tokens] == tokens
        assert found[name][-1].finish == finish
    assert masks.PATIENCE_SECONDS < 15  # the least deadline of a step
