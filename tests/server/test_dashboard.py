"""The Grafana dashboard asks for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.live import serving

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "millstream.json"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
_BY_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Label names by the names of samples, after a request."""
    with serving() as live, live.client() as client:
        assert client.post("/v1/chat/completions", json=BODY).status_code == 200
        text = client.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_every_metric_and_label_exists(dashboard: dict[str, Any], exposed: dict[str, set[str]]) -> None:
    asked = queries(dashboard) + [
        each["query"]["query"] for each in dashboard["templating"]["list"] if "refresh" in each
    ]
    assert len(asked) > 30
    for query in asked:
        names = set(re.findall(r"\b(?:millstream|process)_\w+", query))
        assert names
        assert names <= exposed.keys(), query
        labels = {label.strip() for found in re.findall(r"\bby \(([^)]*)\)", query) for label in found.split(",")}
        known = set().union(*(exposed[name] for name in names)) | _BY_PROMETHEUS
        assert labels <= known, query


def test_panels_do_not_overlap_and_have_ids_of_their_own(dashboard: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def ours(exposed: dict[str, set[str]]) -> set[str]:
    """Our metrics as people write them: a histogram without the endings of its samples."""
    names = {name for name in exposed if name.startswith("millstream_") and not name.endswith("_created")}
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}


def test_every_metric_is_shown(dashboard: dict[str, Any], exposed: dict[str, set[str]]) -> None:
    asked = " ".join(queries(dashboard))
    assert {name for name in ours(exposed) if not re.search(rf"\b{name}(_bucket)?\b", asked)} == set()


def test_the_table_of_metrics_is_that_of_the_server(exposed: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page[page.index("| metric | kind |") :].split("\n\n")[0]
    listed = set(re.findall(r"`((?:millstream|process)_\w+)`", table))
    assert {name for name in listed if name.startswith("millstream_")} == ours(exposed)
    assert {name for name in listed if name.startswith("process_")} <= exposed.keys()
