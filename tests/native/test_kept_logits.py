"""A step cut in two: logits kept, then sampled, give what the step gives by itself."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.native import _core
from native.sampling_case import Row, arrays, mask_words, output
from native.test_model import MODELS, prompt
from native.tiny import build, tensors

LENGTH = 9
ROWS = [2, 5, 8]


def step(
    model: _core.Model,
    tokens: list[int],
    sampling: _core.SamplingBatch | None = None,
    out: _core.SampleOutput | None = None,
    *,
    scores: _core.TokenScores | None = None,
) -> None:
    model.step(
        np.array(tokens, np.int32), np.array([0, LENGTH], np.int32), np.zeros(1, np.int32), np.zeros((1, 1), np.int32),
        np.array(ROWS, np.int32), sampling, out, scores=scores,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["llama", "softcaps"])
def test_the_tokens_and_log_probabilities_are_the_same(name: str) -> None:
    s, kinds = MODELS[name]
    model = build(s, tensors(s, kinds))
    tokens = prompt(s.vocab_size, LENGTH)
    rows = [Row(temperature=0.9, seed=seed, logprobs=3, allowed=frozenset(range(seed, 90))) for seed in range(3)]
    batch = _core.SamplingBatch(**arrays(rows, s.vocab_size))
    whole, out = output(3, 3)
    step(model, tokens, batch, out)
    scored = _core.TokenScores(
        rows=np.array([0, 1], np.int32), targets=np.array(tokens[1:3], np.int32), logprobs=np.zeros(2, np.float32),
        top_ids=np.zeros((2, 0), np.int32), top_logprobs=np.zeros((2, 0), np.float32),
    )  # fmt: skip
    for scores in (None, scored):  # scoring makes logits too, and must leave those that are kept
        halves, out = output(3, 3)
        step(model, tokens, scores=scores)
        model.sample(batch, out)
        for field, value in vars(whole).items():
            np.testing.assert_array_equal(value, getattr(halves, field))


def test_what_is_not_kept_cannot_be_sampled() -> None:
    s, kinds = MODELS["llama"]
    model = build(s, tensors(s, kinds))
    tokens = prompt(s.vocab_size, LENGTH)
    three = _core.SamplingBatch(**arrays([Row()] * 3, s.vocab_size))
    two = _core.SamplingBatch(**arrays([Row()] * 2, s.vocab_size))
    _, out = output(3, 0)
    _, less = output(2, 0)
    with pytest.raises(ValueError, match="no step has kept"):
        model.sample(three, out)
    step(model, tokens)
    with pytest.raises(ValueError, match="one row per sample row"):
        model.sample(two, less)
    model.sample(three, out)
    with pytest.raises(ValueError, match="no step has kept"):
        model.sample(three, out)
    step(model, tokens)
    step(model, tokens, three, out)
    with pytest.raises(ValueError, match="no step has kept"):
        model.sample(three, out)
    with pytest.raises(ValueError, match="go together"):
        step(model, tokens, three, None)
    wide = arrays([Row(allowed=frozenset([1]))] * 3, s.vocab_size)
    wide["masks"] = np.zeros((1, len(mask_words(frozenset(), s.vocab_size)) + 1), np.uint32)
    wide["mask_rows"] = np.zeros(3, np.int32)
    step(model, tokens)
    with pytest.raises(ValueError, match="masks"):
        model.sample(_core.SamplingBatch(**wide), out)
