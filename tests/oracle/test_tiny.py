"""Every family in every tensor type: the engine's logits against Transformers', on tiny random models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.engine import Engine, Part
from support.goldens import file_sha256, tiny_golden
from support.tiny_cases import TINY_CASES
from support.tiny_models import FAMILIES, Family

TOLERANCE = 0.09
"""Largest error of a logit, twice the largest that was measured; nearly all of it comes from 12-bit activations. The
logits have a standard deviation of 2.5; 8-bit activations are off by 0.14 to 0.65, a window that is off by one by 5."""

RMS_TOLERANCE = 0.012
"""Root mean square error: 0.0006 to 0.0076 measured, up to 0.002 of it from f16 keys and values."""


@pytest.mark.parametrize("name", TINY_CASES)
def test_logits(name: str, tmp_path: Path) -> None:
    golden = tiny_golden(name)
    path = TINY_CASES[name].build(tmp_path)
    assert file_sha256(path) == golden.sha256, "the builder makes other weights than the golden's: run tools/oracle.py"
    with Engine(path) as engine:
        logits = engine.logits(golden.prompt)[golden.rows]
    error = np.abs(logits - golden.logits)
    worst = golden.rows[error.max(axis=1).argmax()]
    assert error.max() < TOLERANCE, f"logits differ by {error.max():.3g}, most at position {worst}"
    assert np.sqrt((error**2).mean()) < RMS_TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_sequences_do_not_disturb_each_other(family: Family, tmp_path: Path) -> None:
    """Three sequences in one batch, in uneven chunks, give the bits that each gives alone."""
    path = TINY_CASES[f"{family}-mixed"].build(tmp_path)
    prompts = [TINY_CASES[f"{family}-{kind}"].prompt()[:40] for kind in ("q8_0", "f32", "q5_1")]
    with Engine(path, sequences=3, max_length=64, chunk=48) as engine:
        alone = [engine.logits(prompt, slot=slot) for slot, prompt in enumerate(prompts)]
    with Engine(path, sequences=3, max_length=64, chunk=48) as engine:
        for first in range(0, 40, 10):
            cut = slice(first, first + 10)
            together = engine.step([Part(slot, first, prompt[cut]) for slot, prompt in enumerate(prompts)])
            expected = np.concatenate([logits[cut] for logits in alone])
            assert (together.view(np.uint32) == expected.view(np.uint32)).all()
