"""Every page as text, in a small and a large terminal. `MILLSTREAM_SNAPSHOTS=write` writes them anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from millstream.tui.widgets.chrome import PAGES
from tui import demo
from tui.driving import LARGE, SMALL, looking, shown
from tui.waiting import until

FOLDER = Path(__file__).parent / "snapshots"
SETTLED = {
    "overview": "batch", "requests": "5 open", "models": "Qwen2.5 Coder", "chat": "with qwen", "bench": "r runs it",
    "logs": "the client stalls", "help": "Everywhere",
}  # fmt: skip
"""What a page shows once it has drawn what the server told."""


@pytest.mark.parametrize(("name", "size"), [("small", SMALL), ("large", LARGE)])
async def test_pages_look_as_they_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: tuple[int, int]
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    async with looking(demo.script(12), tmp_path, size) as driver:
        driver.app.state.url = "http://127.0.0.1:8000"  # the port differs from run to run
        for at, page in enumerate(PAGES, 1):
            await driver.press(f"f{at}")
            await driver.shows("127.0.0.1:8000", SETTLED[page] if (page, name) != ("overview", "small") else "smollm2")
            path = FOLDER / f"{page}-{name}.txt"
            if os.environ.get("MILLSTREAM_SNAPSHOTS") == "write":
                await driver.pilot.pause(0.5)
                path.parent.mkdir(exist_ok=True)
                path.write_text(shown(driver.app), encoding="utf-8")
            wanted = path.read_text(encoding="utf-8")
            try:
                await until(lambda wanted=wanted: shown(driver.app) == wanted)
            except AssertionError:
                assert shown(driver.app) == wanted  # tells the difference
