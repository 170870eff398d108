"""An app on a played server, and what its screen shows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from textual._context import visible_screen_stack
from textual.pilot import Pilot

from millstream.tui.app import TopApp
from millstream.tui.client import Server
from millstream.tui.pages.page import Page
from millstream.tui.results import Results
from tui.played_server import Script, playing
from tui.waiting import until

SMALL, LARGE = (80, 24), (200, 60)


class Driver:
    """The app, its pilot, and shorthands for both."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        await self.pilot.press(*keys)

    async def shows(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        with contextlib.suppress(AssertionError):
            await until(lambda: has_all(shown(self.app), texts))
            return
        raise AssertionError(f"{[text for text in texts if text not in shown(self.app)]} not in\n{shown(self.app)}")

    async def hides(self, text: str) -> None:
        """Wait until this is not on the screen."""
        await until(lambda: text not in shown(self.app))

    async def on(self, name: str) -> None:
        """Wait until the page of this name is in front."""
        await until(lambda: getattr(self.app.screen, "NAME", None) == name)

    @property
    def page(self) -> Page:
        """The page in front."""
        assert isinstance(self.app.screen, Page)
        return self.app.screen


def has_all(screen: str, texts: tuple[str, ...]) -> bool:
    """Whether each is on the screen."""
    return all(text in screen for text in texts)


@contextlib.asynccontextmanager
async def looking(
    at: Script | str, folder: Path, size: tuple[int, int] = SMALL, *, key: str | None = None, **options: Any
) -> AsyncIterator[Driver]:
    """An app that looks at a script, which is played meanwhile, or at an address. It waits for ever, as a script tells
    no more than it has."""
    options.setdefault("patience", math.inf)
    async with contextlib.AsyncExitStack() as stack:
        url = at if isinstance(at, str) else await stack.enter_async_context(playing(at))
        app = TopApp(Server(url, key), results=Results(folder / "bench.json"), **options)
        pilot = await stack.enter_async_context(app.run_test(size=size, notifications=True))
        if isinstance(at, Script) and at.snapshots and not at.refuse:
            await until(lambda: len(app.state.history.decode) == len(at.snapshots))
        yield Driver(app, pilot)


def shown(app: TopApp) -> str:
    """The screen as text, without blanks at the ends of lines."""
    visible_screen_stack.set(app._background_screens)  # as Textual does before it draws a dialog over a page
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips()) + "\n"
