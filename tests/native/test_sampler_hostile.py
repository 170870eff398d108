"""Arrays that are wrong in kind, size or content: refused with a ValueError, or sampled to a valid token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.native import _core
from native.sampling_case import Row, arrays, output, sample, sample_one

VOCAB = 70


def run(changed: dict[str, object], rows: int = 2) -> np.ndarray:
    result, out = output(rows)
    batch = _core.SamplingBatch(**{**arrays([Row(allowed=frozenset([1]))] * rows, VOCAB), **changed})
    _core.sample(np.zeros((rows, VOCAB), np.float32), batch, out)
    return result.tokens


@pytest.mark.parametrize("name", list(arrays([Row()], VOCAB)))
def test_kind_and_layout_are_checked(name: str) -> None:
    good = arrays([Row(allowed=frozenset([1]), bias={1: 0.0}, history={1: 1})] * 2, VOCAB)[name]
    strided = np.repeat(good, 2, axis=-1)[..., ::2]
    for wrong in (good.astype(np.float64), good[None], strided, "text", [1, 2]):
        with pytest.raises(ValueError, match=name):
            run({name: wrong})
    if name != "masks":  # there may be more masks than rows that use one
        with pytest.raises(ValueError, match="expected"):
            run({name: np.concatenate([good, good, good])})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("bias_starts", [0, 1, 1]),
        ("bias_starts", [-1, 0, 0]),
        ("bias_starts", [0, -5, 0]),
        ("bias_starts", [0, 2**31 - 1, 0]),
        ("history_starts", [0, 0, 2**31 - 1]),
        ("history_starts", [3, 2, 1]),
        ("mask_rows", [0, 2]),
        ("mask_rows", [2**31 - 1, 0]),
    ],
)
def test_offsets_are_checked(name: str, values: list[int]) -> None:
    with pytest.raises(ValueError, match=name):
        run({name: np.array(values, np.int32)})


def test_offsets_are_checked_again_after_a_change_in_place() -> None:
    made = arrays([Row(bias={1: 0.0})], VOCAB)
    batch = _core.SamplingBatch(**made)
    _, out = output(1)
    made["bias_starts"][:] = [0, 1000]
    with pytest.raises(ValueError, match="bias_starts"):
        _core.sample(np.zeros((1, VOCAB), np.float32), batch, out)


def test_rows_rewritten_in_place_count() -> None:
    made = arrays([Row(temperature=0.0)], VOCAB)
    batch = _core.SamplingBatch(**made)
    result, out = output(1)
    logits = np.zeros((1, VOCAB), np.float32)
    _core.sample(logits, batch, out)
    assert result.tokens[0] == 0
    logits[0, 40] = 1
    _core.sample(logits, batch, out)
    assert result.tokens[0] == 40
    made["temperature"][0], made["top_k"][0] = 1e9, 2
    seen = set()
    for made["position"][0] in range(30):
        _core.sample(logits, batch, out)
        seen.add(int(result.tokens[0]))
    assert seen == {0, 40}


def test_the_width_of_masks_is_checked() -> None:
    with pytest.raises(ValueError, match="masks"):
        run({"masks": np.zeros((2, 2), np.uint32)})


@pytest.mark.parametrize(
    "logits", [np.zeros((3, VOCAB)), np.zeros((3, VOCAB), np.float32), np.zeros((2, 0), np.float32)]
)
def test_logits_are_checked(logits: np.ndarray) -> None:
    _, out = output(2)
    with pytest.raises(ValueError, match=r"logits|sampling"):
        _core.sample(logits, _core.SamplingBatch(**arrays([Row()] * 2, VOCAB)), out)


def test_output_is_checked() -> None:
    good = {
        "tokens": np.zeros(2, np.int32),
        "logprobs": np.zeros(2, np.float32),
        "top_ids": np.zeros((2, 3), np.int32),
        "top_logprobs": np.zeros((2, 3), np.float32),
    }
    read_only = np.zeros(2, np.int32)
    read_only.flags.writeable = False
    for name, wrong in [
        ("tokens", read_only),
        ("tokens", np.zeros(2, np.int64)),
        ("logprobs", np.zeros(1, np.float32)),
        ("top_ids", np.zeros((1, 3), np.int32)),
        ("top_logprobs", np.zeros((2, 2), np.float32)),
    ]:
        with pytest.raises(ValueError, match=name):
            _core.SampleOutput(**{**good, name: wrong})
    out = _core.SampleOutput(**good)
    logits = np.zeros((2, VOCAB), np.float32)
    with pytest.raises(ValueError, match="top_ids"):
        _core.sample(logits, _core.SamplingBatch(**arrays([Row(), Row(logprobs=4)], VOCAB)), out)
    with pytest.raises(ValueError, match="output"):
        _core.sample(logits[:1], _core.SamplingBatch(**arrays([Row()], VOCAB)), out)


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[9] = 1
    wild = {VOCAB: 100.0, -1: 100.0, 2**31 - 1: 100.0, -(2**31): 100.0}
    assert sample_one(logits, Row(temperature=0.0, bias=wild)) == 9
    history = dict.fromkeys(wild, 1)
    assert sample_one(logits, Row(temperature=0.0, history=history, repetition_penalty=2.0)) == 9


HUGE = [0.0, -0.0, 1e-45, 1e-30, -1.0, 1e30, 3.4e38, -3.4e38, float("inf"), float("-inf"), float("nan")]
number = st.sampled_from(HUGE) | st.floats(width=32)


@given(st.lists(number, min_size=1, max_size=300), number, number, number, number, number, number, st.data())
@settings(max_examples=3 * settings.default.max_examples)
def test_any_numbers_give_a_token_that_is_allowed(
    values: list[float],
    temperature: float,
    top_p: float,
    min_p: float,
    repetition: float,
    presence: float,
    frequency: float,
    data: st.DataObject,
) -> None:
    vocab = len(values)
    tokens = st.integers(0, vocab - 1)
    row = Row(
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        top_k=data.draw(st.integers(-(2**31), 2**31 - 1)),
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        bias=data.draw(st.dictionaries(tokens, number, max_size=4)),
        history=data.draw(st.dictionaries(tokens, st.integers(-(2**31), 2**31 - 1), max_size=4)),
        allowed=data.draw(st.none() | st.frozensets(tokens)),
        position=data.draw(st.integers(0, 2**32 - 1)),
        logprobs=data.draw(st.integers(-(2**31), 20)),
    )
    result = sample(np.array([values], np.float32), [row])
    token = int(result.tokens[0])
    allowed = set(range(vocab) if row.allowed is None else row.allowed)
    banned = {t for t, value in row.bias.items() if value == float("-inf")}
    if allowed - banned:
        assert token in allowed - banned
    else:
        assert token == -1
    if row.logprobs >= 0:
        assert not np.isnan(result.logprobs[0])
        assert result.logprobs[0] <= 1e-6
        assert not np.isnan(result.top_logprobs[0]).any()


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-38, 1e-20, 1e-6, -1.0, float("nan")])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    logits = np.array([1.0, 3e38, 3e38, -3e38, np.nan], np.float32)
    rows = [Row(temperature=temperature, position=position) for position in range(20)]
    assert set(sample(np.tile(logits, (20, 1)), rows).tokens.tolist()) == {1}


def test_nothing_allowed() -> None:
    nothing = np.full(VOCAB, -np.inf, np.float32)
    hopeless = np.full(VOCAB, np.nan, np.float32)
    for logits in (nothing, hopeless):
        assert sample_one(logits, Row()) == 0
        assert sample_one(logits, Row(bias={0: float("-inf")})) == 1
        assert sample_one(logits, Row(allowed=frozenset([33, 40]))) == 33
        assert sample_one(logits, Row(allowed=frozenset())) == -1
        assert sample_one(logits, Row(bias=dict.fromkeys(range(VOCAB), float("-inf")))) == -1
    assert sample_one(np.zeros(VOCAB, np.float32), Row(allowed=frozenset(), temperature=0.0)) == -1


def test_numpy_decides_lifetime() -> None:
    """The batch keeps its arrays alive after the caller dropped them."""

    def make() -> Callable[[], int]:
        batch = _core.SamplingBatch(**arrays([replace(Row(), temperature=0.0, bias={5: 1.0})], VOCAB))
        result, out = output(1)

        def run_it() -> int:
            _core.sample(np.zeros((1, VOCAB), np.float32), batch, out)
            return int(result.tokens[0])

        return run_it

    run_it = make()
    _ = [np.full(1000, 255, np.uint8) for _ in range(100)]
    assert run_it() == 5
