"""The goldens and the helpers that read them, without an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.models.loader import load_model_file
from support.goldens import (
    TOP,
    TextGolden,
    bucket_kl,
    full_kl,
    golden_models,
    greedy_golden,
    log_softmax,
    text_golden,
    tiny_golden,
)
from support.real_models import REAL_MODELS, find_real_model
from support.tiny_cases import TINY_CASES


@pytest.mark.parametrize("name", golden_models("text"))
def test_text_golden_is_a_distribution(name: str) -> None:
    golden = text_golden(name)
    assert golden.ids.shape == golden.logprobs.shape == (500, TOP)
    assert (np.diff(golden.logprobs, axis=1) <= 0).all()
    total = np.exp(golden.logprobs.astype(np.float64)).sum(axis=1) + golden.tail
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize("name", golden_models("greedy"))
def test_greedy_golden_is_complete(name: str) -> None:
    runs = greedy_golden(name).runs
    assert len(runs) == 20
    for run in runs:
        assert len(run.tokens) == len(run.gaps) <= 48
        assert min(run.gaps) >= 0.0


@pytest.mark.parametrize("name", TINY_CASES)
def test_tiny_models_load(name: str, tmp_path: Path) -> None:
    """The builder's files are accepted, and the golden has a row for every position the case asks for."""
    case, golden = TINY_CASES[name], tiny_golden(name)
    with load_model_file(case.build(tmp_path)) as model:
        assert model.spec.family == case.family
        assert model.spec.tied_output == case.tied_output
        assert golden.logits.shape == (len(case.rows()), model.spec.vocab_size)
    assert (golden.prompt == case.prompt()).all()


def test_kl_of_two_known_distributions() -> None:
    p, q = np.array([[0.5, 0.25, 0.25]]), np.array([[0.25, 0.5, 0.25]])
    assert full_kl(np.log(p), np.log(q)) == pytest.approx(0.25 * np.log(2))


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 1.0))
def test_buckets_bound_the_divergence_from_below(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.normal(0.0, 3.0, (4, 1000))
    other = (exact + rng.normal(0.0, noise, exact.shape)).astype(np.float32)
    log_p = log_softmax(exact)
    ids = np.argsort(-log_p, axis=1)[:, :TOP].astype(np.int32)
    top = np.take_along_axis(log_p, ids, axis=1)
    tail = 1.0 - np.exp(top).sum(axis=1)
    golden = TextGolden("", np.zeros(4, np.int32), ids, top.astype(np.float32), tail.astype(np.float32))
    lower = bucket_kl(golden, slice(0, 4), other)
    assert (lower >= -1e-9).all()
    assert (lower <= full_kl(log_p, log_softmax(other)) + 1e-6).all()


def test_real_model_is_found_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_TEST_MODELS", str(tmp_path))
    assert find_real_model("smollm2") is None
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / f"{REAL_MODELS['smollm2']}.gguf"
    file.touch()
    assert find_real_model("smollm2") == find_real_model(REAL_MODELS["smollm2"]) == file
