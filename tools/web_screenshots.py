"""Make the pictures of the web page in docs/images. Needs what `tests/web` needs.

python tools/web_screenshots.py [--to docs/images] [NAME...]

The server is a real one; what the model says and what `/v1/events` tells is played.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from playwright.async_api import Page, async_playwright  # noqa: E402

from millstream.admin.views import Snapshot  # noqa: E402
from millstream.ir.deltas import Content, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage  # noqa: E402
from millstream.ir.provider import ModelCard  # noqa: E402
from millstream.ir.request import Request  # noqa: E402
from support.live import Live, serving  # noqa: E402
from support.provider import ScriptedProvider, Step  # noqa: E402
from web.conftest import ARGUMENTS, CHROMIUM  # noqa: E402
from web.played_events import PlayedEvents, a_snapshot  # noqa: E402

SIZES: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}},
    "-phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
LOOKS = ("light", "dark")
SHOTS = [f"{what}{size}-{look}" for what in ("chat", "tools", "dashboard") for size in SIZES for look in LOOKS]
DOCUMENTED = ("chat-light", "tools-light", "dashboard-dark", "chat-phone-light")
"""Those that the documentation shows."""

THOUGHT = (
    "The overshot wheel is fed from above, so the weight of the water does the work. Compare by efficiency and head."
)
ANSWER = """An **overshot** wheel is filled from above and turned by the *weight* of the water; an **undershot** one
hangs in the stream and is pushed by its *speed*.

| wheel | head | efficiency |
|---|--:|--:|
| overshot | 3 – 10 m | 80 – 90 % |
| breastshot | 1.5 – 4 m | 70 – 80 % |
| undershot | below 1.5 m | 25 – 40 % |

The power is `P = η · ρ · g · Q · h`:

```python
def power(flow: float, head: float, efficiency: float = 0.85) -> float:
    \"\"\"Watts of a wheel with `flow` in m³/s and `head` in m.\"\"\"
    return efficiency * 1000 * 9.81 * flow * head
```
"""
QUESTION = "What is the difference between an overshot and an undershot wheel?"
MODEL = ModelCard(id="r1-distill-1.5b", created=1_780_000_000, context_length=32_768)
PIECE_SECONDS = 0.12
"""For three tokens or four: about 25 tokens a second."""
RUNNING = (
    ("req_8f14e45f", "editor", "messages", 1_200, 87, 20.4),
    ("req_c9f0f895", "ci", "chat_completions", 412, 203, 19.1),
    ("req_45c48cce", "editor", "responses", 2_960, 12, 17.6),
    ("req_6512bd43", "ci", "chat_completions", 96, 640, 18.3),
    ("req_9bf31c7f", "batch", "completions", 731, 55, 16.9),
)
OTHERS = ("A name for a bakery by a river", "Explain paged attention", "Review this SQL migration")


def model(request: Request) -> Iterator[Step]:
    """What is said to the question, to a call, and to all else."""
    asked = request.messages[-1]  # type: ignore[union-attr]
    yield Start(prompt_tokens=61, cached_tokens=32)
    yield 0.4
    if "flow" in asked.content:
        yield ToolCallStart(0, "call_0", "river_gauge")
        yield ToolCallArgs(0, '{"station":"Mühlbach","unit":"m3/s"}')
        yield Finish("tool_calls", Usage(61, 24, 32, 0))
    elif asked.content == QUESTION:
        for at in range(0, len(THOUGHT), 12):
            yield Reasoning(THOUGHT[at : at + 12])
            yield PIECE_SECONDS
        for at in range(0, len(ANSWER), 12):
            yield Content(ANSWER[at : at + 12])
            yield PIECE_SECONDS
        yield Finish("stop", Usage(61, 212, 32, 38))
    else:
        yield Content("Gladly.")
        yield Finish("stop", Usage(61, 3, 32, 0))


def moment(tick: int) -> Snapshot:
    """A server under a load that comes and goes."""
    swing = math.sin(tick / 9) + 0.5 * math.sin(tick / 3.7)
    base = a_snapshot()
    engine = msgspec.structs.replace(
        base.engines[0], model=MODEL.id, isa="avx512vnni", threads=8, running=3 + round(swing),
        kv_blocks_used=1_310 + round(290 * swing), kv_blocks_total=2_048, resident_bytes=1_912_000_000,
    )  # fmt: skip
    decoding, queued = (msgspec.structs.replace(each, model=MODEL.id) for each in base.requests)
    open_requests = [
        msgspec.structs.replace(
            decoding, id=name, key=key, surface=surface, prompt_tokens=prompt, completion_tokens=done + tick,
            tokens_per_second=speed, began=base.time - 0.9 - (done + tick) / speed,
        )
        for name, key, surface, prompt, done, speed in RUNNING[: engine.running]
    ] + [msgspec.structs.replace(queued, id="req_d3d94468", key="batch")]  # fmt: skip
    served, pulled = base.models
    return msgspec.structs.replace(
        base,
        version="0.1.0",
        decode_tokens_per_second=58 + 14 * swing,
        prompt_tokens_per_second=max(0.0, 140 + 90 * swing),
        first_token=msgspec.structs.replace(base.first_token, p50=0.9 + 0.2 * math.sin(tick / 5)),
        inter_token=msgspec.structs.replace(base.inter_token, p50=0.048 + 0.006 * swing, p95=0.071, p99=0.118),
        engines=[engine],
        open_requests=len(open_requests),
        requests=open_requests,
        models=[
            msgspec.structs.replace(served, name=MODEL.id, file_bytes=1_117_000_000, context_length=32_768),
            msgspec.structs.replace(pulled, name="gemma-3-270m", fetch_bytes=238_175_024, fetched_bytes=59_500_000),
        ],
        keys=[
            msgspec.structs.replace(base.keys[0], name="editor", requests=312, completion_tokens=88_000),
            msgspec.structs.replace(base.keys[0], name="batch", requests=1_204, refused=37, prompt_tokens=2_411_000),
        ],
    )


class Take:
    """Takes the pictures that are wanted, of one size and look."""

    def __init__(self, to: Path, wanted: Collection[str], suffix: str) -> None:
        self._to, self._wanted, self._suffix = to, wanted, suffix

    def wants(self, *subjects: str) -> bool:
        return any(subject + self._suffix in self._wanted for subject in subjects)

    async def __call__(self, page: Page, subject: str) -> None:
        if self.wants(subject):
            path = self._to / f"web-{subject}{self._suffix}.png"
            await page.screenshot(path=path)
            print(path)


async def chat(page: Page, live: Live, take: Take) -> None:
    await page.goto(live.url)
    for text in (*OTHERS, QUESTION):
        await page.click("#new-chat") if await page.locator("#new-chat").is_visible() else await page.goto(
            f"{live.url}/#/"
        )
        await page.fill("#prompt", text)
        await page.click("#send")
        await page.locator(".meta", has_text="tokens").wait_for()
        await page.wait_for_selector("#send[data-busy=false]")
    await page.evaluate("document.querySelector('#scroller').scrollTop = 0")
    await take(page, "chat")
    await page.fill("#prompt", "And how much flow is there now?")
    await page.click("#send")
    await page.locator(".call textarea").wait_for()
    await take(page, "tools")


async def dashboard(page: Page, live: Live, events: PlayedEvents, take: Take) -> None:
    events.sent = 0
    await page.goto(f"{live.url}/#/dashboard")
    await page.locator("#connection[data-state=live]").wait_for()
    await asyncio.sleep(5)
    await take(page, "dashboard")


async def shoot(live: Live, events: PlayedEvents, to: Path, wanted: Collection[str]) -> None:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for size, options in SIZES.items():
            for look in LOOKS:
                take = Take(to, wanted, f"{size}-{look}")
                if not take.wants("chat", "tools", "dashboard"):
                    continue
                context = await browser.new_context(**options, color_scheme=look, reduced_motion="reduce")
                page = await context.new_page()
                page.set_default_timeout(60_000)
                if take.wants("chat", "tools"):
                    await chat(page, live, take)
                if take.wants("dashboard"):
                    await dashboard(page, live, events, take)
                await context.close()
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHOTS))
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SHOTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}")
    given.to.mkdir(parents=True, exist_ok=True)
    with serving(ScriptedProvider(model, card=MODEL)) as live:
        events = PlayedEvents()
        events.play = moment
        live.app.router.routes.insert(0, events.route())
        asyncio.run(shoot(live, events, given.to, given.names or DOCUMENTED))


if __name__ == "__main__":
    main()
