"""Make the pictures of `millstream top` in docs/images from a played server.

python tools/top_screenshots.py [--to docs/images] [NAME...]

Look at them in a browser: rsvg and its like pass over the widths that keep the columns in place.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("TZ", "UTC")
time.tzset()

from textual.pilot import Pilot  # noqa: E402

from millstream.bench.http.figures import Figures, Spread  # noqa: E402
from millstream.bench.http.report import standalone  # noqa: E402
from millstream.tui.app import TopApp  # noqa: E402
from millstream.tui.benchmark import Plan, Result  # noqa: E402
from millstream.tui.client import Server  # noqa: E402
from millstream.tui.pages.bench import BenchPage  # noqa: E402
from millstream.tui.results import Results  # noqa: E402
from tui import demo  # noqa: E402
from tui.driving import shown  # noqa: E402
from tui.played_server import playing  # noqa: E402
from tui.waiting import until  # noqa: E402

Steps = Callable[[Pilot[None]], Awaitable[None]]


async def _keys(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause(0.15)


async def _overview(pilot: Pilot[None]) -> None:
    await pilot.pause(0.2)


async def _requests(pilot: Pilot[None]) -> None:
    await _keys(pilot, "2", "down")


async def _request(pilot: Pilot[None]) -> None:
    await _keys(pilot, "2", "down", "down", "enter")
    await pilot.pause(0.6)


async def _confirm(pilot: Pilot[None]) -> None:
    await _keys(pilot, "2", "c")


async def _models(pilot: Pilot[None]) -> None:
    await _keys(pilot, "3", "down", "down")


async def _chat(pilot: Pilot[None]) -> None:
    await _keys(pilot, "4")
    pilot.app.screen.query_one("#message").text = "Remove duplicates from a list, but keep the order."  # type: ignore[attr-defined]
    await _keys(pilot, "enter")
    await until(lambda: "tok/s" in shown(pilot.app))  # type: ignore[arg-type]
    await _keys(pilot, "ctrl+t")


async def _bench(pilot: Pilot[None]) -> None:
    await _keys(pilot, "5")
    page = pilot.app.screen
    assert isinstance(page, BenchPage)
    page.present(
        _result(
            7.58, demo.NOW - 40, Spread(0.288, 0.417, 0.461), Spread(0.0241, 0.0309, 0.0544),
            Spread(0.0252, 0.0271, 0.0277),
        ),
        _result(
            8.24, demo.NOW - 81_240, Spread(0.312, 0.431, 0.444), Spread(0.0263, 0.0341, 0.0602),
            Spread(0.0275, 0.0296, 0.0303),
        ),
    )  # fmt: skip
    await pilot.pause(0.2)


async def _logs(pilot: Pilot[None]) -> None:
    await _keys(pilot, "6", "l", "l", "l")
    await pilot.pause(0.4)


async def _help(pilot: Pilot[None]) -> None:
    await _keys(pilot, "question_mark")


def _result(seconds: float, when: float, first: Spread, inter: Spread, per: Spread) -> Result:
    figures = Figures(
        requests=16,
        failed=0,
        error=None,
        seconds=seconds,
        tokens=1_024,
        cached_tokens=512,
        prompt_tokens=816,
        first_token=first,
        inter_token=inter,
        per_token=per,
        good=16,
    )
    return Result(plan=Plan(), when=when, figures=figures)


SMALL, LARGE = (80, 24), (200, 60)
SHOTS: dict[str, tuple[tuple[int, int], Steps]] = {
    "overview": ((110, 32), _overview),
    "overview-small": (SMALL, _overview),
    "overview-large": (LARGE, _overview),
    "requests": ((110, 28), _requests),
    "requests-small": (SMALL, _requests),
    "requests-large": (LARGE, _requests),
    "request": ((140, 32), _request),
    "request-small": (SMALL, _request),
    "confirm": ((110, 28), _confirm),
    "models": ((110, 28), _models),
    "models-small": (SMALL, _models),
    "chat": ((110, 28), _chat),
    "chat-small": (SMALL, _chat),
    "bench": ((110, 28), _bench),
    "bench-small": (SMALL, _bench),
    "logs": ((110, 28), _logs),
    "logs-small": (SMALL, _logs),
    "help": ((110, 32), _help),
    "help-large": (LARGE, _help),
}
DOCUMENTED = ("overview", "requests", "request", "models", "chat", "bench", "logs")
"""Those that the documentation shows."""


async def shoot(name: str) -> str:
    """The SVG of one picture."""
    size, steps = SHOTS[name]
    with tempfile.TemporaryDirectory() as folder:
        script = demo.script()
        script.pace = 0.022
        async with playing(script) as url:
            app = TopApp(Server(url), results=Results(Path(folder) / "bench.json"), patience=math.inf)
            async with app.run_test(size=size) as pilot:
                await until(lambda: len(app.state.history.decode) == 90)
                app.state.url = "http://127.0.0.1:8000"
                app.screen.show_all(app.state)  # type: ignore[attr-defined]
                await steps(pilot)
                app.clear_notifications()
                await pilot.pause(0.1)
                return standalone(app.export_screenshot(title="millstream top", simplify=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHOTS))
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SHOTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}")
    given.to.mkdir(parents=True, exist_ok=True)
    for name in given.names or DOCUMENTED:
        path = given.to / f"top-{name}.svg"
        path.write_text(asyncio.run(shoot(name)), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
