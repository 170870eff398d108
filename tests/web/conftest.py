"""One Chromium for all tests of the page, a live server with a scripted model, and a watch over every tab.

At the end of each test the watch has seen no breach of the content policy, no error on the console and no request to
anybody but the server, or the test fails.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from support.live import Live, serving
from web.played_events import PlayedEvents

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The sandbox needs privileges that containers do not give, and the only pages are our own. Nothing is painted by a GPU.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}

TELL_BREACHES = "addEventListener('securitypolicyviolation', (event) => console.error('policy', event.blockedURI))"

FORGET = """() => new Promise((resolve) => {
  localStorage.clear();
  sessionStorage.clear();
  const request = indexedDB.deleteDatabase("millstream");
  request.onsuccess = request.onerror = request.onblocked = resolve;
})"""


class Tab:
    """A tab of a browser of its own, and what it should not have done."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self.allowed: list[str] = []
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def allow(self, pattern: str) -> None:
        """A failure that the browser writes to the console, as the test provokes it."""
        self.allowed.append(pattern)

    async def open(self, fragment: str = "") -> None:
        await self.page.goto(f"{self.url}/{fragment}")
        await self.ready()

    async def reload(self) -> None:
        await self.page.reload()
        await self.ready()

    async def ready(self) -> None:
        """The page is there and knows its model: who asks before is not told at once that an answer is on its way."""
        await self.page.wait_for_selector("html[data-ready]")
        await self.page.wait_for_selector("#model option:not([value=''])", state="attached")

    async def say(self, text: str) -> None:
        """Send a message."""
        await self.page.fill("#prompt", text)
        await self.page.click("#send")

    async def answer(self, text: str) -> Any:
        """Send a message and wait for the end of its answer; the answer's element."""
        await self.say(text)
        await self.idle()
        return self.page.locator(".message.assistant").last

    async def idle(self) -> None:
        await self.page.wait_for_selector("#send[data-busy=false]")

    def check(self) -> None:
        wrong = [each for each in self.problems if not any(re.search(one, each) for one in self.allowed)]
        assert wrong == []

    def _told(self, message: Any) -> None:
        # Where the tab has no page of ours, Chromium asks for an icon by itself.
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            self.problems.append(message.text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url + "/", "blob:", "data:")):
            self.problems.append(f"request to {url}")


OpenTab = Callable[..., AbstractAsyncContextManager[Tab]]


@pytest.fixture(scope="session")
def server() -> Iterator[Live]:
    with serving(keep_alive_seconds=0.5) as live:
        yield live


@pytest.fixture(scope="session")
def played_events(server: Live) -> PlayedEvents:
    played = PlayedEvents()
    server.app.router.routes.insert(0, played.route())
    return played


@pytest.fixture
def live(server: Live) -> Live:
    """The server, its provider as new."""
    server.provider.__init__()
    return server


@pytest.fixture
def events(played_events: PlayedEvents) -> PlayedEvents:
    """What `/v1/events` says, as new."""
    played_events.__init__()
    return played_events


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        await browser.close()


@asynccontextmanager
async def a_tab(browser: Any, url: str, **options: Any) -> AsyncIterator[Tab]:
    """A tab of a new context; ``options`` are those of the context, such as its size."""
    context = await browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
    context.set_default_timeout(60_000)
    await context.add_init_script(TELL_BREACHES)
    tab = Tab(await context.new_page(), url)
    yield tab
    await context.close()
    tab.check()


@pytest.fixture
def open_tab(browser: Any, live: Live) -> OpenTab:
    """Tabs at the live server."""

    def opened(**options: Any) -> AbstractAsyncContextManager[Tab]:
        return a_tab(browser, live.url, **options)

    return opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_tab(browser: Any, server: Live, played_events: PlayedEvents) -> AsyncIterator[Tab]:
    async with a_tab(browser, server.url, permissions=["clipboard-read", "clipboard-write"]) as tab:
        await tab.open()
        yield tab
        tab.problems.clear()  # each test has judged its own


@pytest_asyncio.fixture(loop_scope="session")
async def tab(shared_tab: Tab, live: Live, events: PlayedEvents) -> AsyncIterator[Tab]:
    """A tab as wide as a desktop with the page in it, as a newcomer sees it; the same for all tests, as a browser
    context of its own would take longer than most of them."""
    # Of the same origin, and without the page: what the test before left open ends.
    await shared_tab.page.goto(f"{shared_tab.url}/health")
    shared_tab.problems.clear()
    shared_tab.allowed.clear()
    await shared_tab.page.evaluate(FORGET)
    await shared_tab.open()
    yield shared_tab
    shared_tab.check()
