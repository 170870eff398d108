"""A short storm on a tiny model; `make soak` is the long one on a real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.storm import Report, Storm, run
from support.served import serve
from support.tiny_models import build_tiny_model

GROWTH = 48 << 20
"""Bytes that the API process may hold more after the storm: caches that are bounded are filled by then."""

FLAT = 16 << 20
"""Bytes that a process may hold more after a second storm than after the first."""


def check(report: Report, storm: Storm) -> None:
    """What must be true after any storm."""
    assert report.faults == []
    assert report.restarts == storm.kills
    assert sum(report.ends.values()) - report.ends["told to come back"] == storm.requests + 2 * storm.calm
    assert report.ends["left, but is not let go"] == 0
    assert report.resumed >= storm.kills
    assert report.rss_storm["api"] < report.rss_before["api"] + GROWTH
    for name, before in report.rss_storm.items():
        assert report.rss_calm[name] < before + FLAT, (name, report.rss_storm, report.rss_calm)


@pytest.mark.slow
async def test_a_short_storm(tmp_path: Path) -> None:
    storm = Storm(clients=16, requests=90, kills=2, calm=30, long_prompt=60, max_tokens=40)
    model = build_tiny_model(tmp_path / "tiny.gguf")
    with serve(model, "--max-batch", "8", "--max-queue", "12", "--model-name", "tiny") as server:
        report = await run(server, "tiny", storm)
    check(report, storm)
    assert report.ends["read"] > 40
    assert report.ends["refused"] > 3
