"""The dashboard against a played `/v1/events`."""

from __future__ import annotations

import msgspec
import pytest

from millstream.admin.views import Percentiles
from web.conftest import Tab
from web.played_events import PlayedEvents
from web.plays import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def show(tab: Tab) -> None:
    await tab.page.get_by_role("link", name="Dashboard").click()


async def test_what_a_server_does_is_shown(tab: Tab, events: PlayedEvents) -> None:
    page = tab.page
    await show(tab)
    await page.locator("#connection[data-state=live]").wait_for()
    tiles = page.locator(".tile")
    assert await tiles.locator(".number").all_inner_texts() == ["41.3", "2", "38 %", "212 ms", "24 ms"]
    running = await tiles.nth(1).inner_text()
    assert "1 waiting" in running
    assert "1 sequence: not enough free KV cache" in running
    assert "p95 1.5 s" in await tiles.nth(3).inner_text()
    assert "up 2 h 1 min" in await page.inner_text("#server-facts")
    requests = page.locator("section[aria-label='Open requests'] tbody tr")
    assert await requests.count() == 2
    assert await requests.nth(0).locator("td").all_inner_texts() == [
        "req_1", "team-a", "messages", "tiny", "decode", "1,200", "87", "20.5", "4.2 s"
    ]  # fmt: skip
    assert "not enough free KV cache" in await requests.nth(1).inner_text()
    models = page.locator("section[aria-label=Models] tbody tr")
    assert "tiny (default)" in await models.nth(0).inner_text()
    assert "25 % of 1.0 GB to fetch" in await models.nth(1).inner_text()
    assert "312 MB" in await page.locator("section[aria-label=Engines] tbody").inner_text()
    assert "9,000" in await page.locator("section[aria-label=Keys] tbody").inner_text()
    spark = tiles.nth(0).locator("svg")
    assert (await spark.locator(".line").get_attribute("d") or "").startswith("M")
    assert await spark.locator("title").text_content() == "Generated: now 41.3, at least 41.3, at most 41.3"

    events.snapshot = msgspec.structs.replace(
        events.snapshot, decode_tokens_per_second=0.0, requests=[], keys=[], engines=[], first_token=Percentiles()
    )
    await tiles.nth(0).locator(".number", has_text="0").wait_for()
    await page.get_by_text("Nothing is being answered.").wait_for()
    assert await tiles.locator(".number").all_inner_texts() == ["0", "0", "–", "–", "24 ms"]
    assert not await page.locator("section[aria-label=Keys]").is_visible()


async def test_it_connects_again_and_leaves_when_it_is_not_shown(tab: Tab, events: PlayedEvents) -> None:
    page = tab.page
    events.length = 1
    await show(tab)
    await page.locator("#dashboard-problem-text", has_text="Trying again in").wait_for()
    await page.locator("#connection[data-state=waiting]").wait_for()
    events.length, sent = None, events.sent
    await until(lambda: events.sent > sent + 5, "it does not come back for good")
    await page.locator("#connection[data-state=live]").wait_for()
    assert await page.locator("#dashboard-problem").is_hidden()
    assert events.connections >= 2
    await page.get_by_role("link", name="Chat").click()
    await until(lambda: not events.listeners, "the page still listens")


async def test_a_key_without_rights_is_told_so(tab: Tab, events: PlayedEvents) -> None:
    tab.allow("Failed to load resource")
    page = tab.page
    await page.evaluate("sessionStorage['millstream.key'] = 'sk-plain'")
    events.refuse = (403, "This needs a key with admin rights.")
    await show(tab)
    await page.locator("#connection[data-state=refused]").wait_for()
    said = await page.inner_text("#dashboard-problem")
    assert "The key may not do this" in said
    assert "admin rights" in said
    assert events.keys == ["Bearer sk-plain"]
    events.refuse = None
    await page.click("#dashboard-retry")
    await page.locator("#connection[data-state=live]").wait_for()


async def test_a_key_is_asked_for(tab: Tab, events: PlayedEvents) -> None:
    tab.allow("Failed to load resource")
    page = tab.page
    events.refuse = (401, "A key is needed.")
    await show(tab)
    await page.wait_for_selector("#settings[open]")
    events.refuse = None
    await page.fill("#key", "sk-admin")
    await page.keyboard.press("Enter")
    await page.locator("#connection[data-state=live]").wait_for()
    assert events.keys[-1] == "Bearer sk-admin"


PARSE = """async (texts) => {
  const { EventParser } = await import("/assets/lib/sse.js");
  const read = (pieces) => {
    const parser = new EventParser();
    return pieces.flatMap((piece) => parser.feed(piece));
  };
  return texts.map((text) => {
    const whole = JSON.stringify(read([text]));
    for (let cut = 0; cut <= text.length; cut += 1) {
      if (JSON.stringify(read([text.slice(0, cut), text.slice(cut)])) !== whole) return `cut at ${cut}`;
    }
    return JSON.stringify(read([...text])) === whole ? JSON.parse(whole) : "letter by letter";
  });
}"""


async def test_events_are_read_however_they_are_cut(tab: Tab) -> None:
    streams = {
        "data: a\n\ndata:b\n\n": [["message", "a"], ["message", "b"]],
        "event: x\r\ndata: 1\r\ndata:  2\r\n\r\n": [["x", "1\n 2"]],
        ": note\r\revent: lost\r\rdata\r\rid: 3\n": [["message", ""]],
        "data: not ended\n": [],
        "data: a\u2028b\u0085c\n\n": [["message", "a\u2028b\u0085c"]],
        "event: snapshot\ndata: {\n\nretry: 5\n\ndata: }\n\n": [["snapshot", "{"], ["message", "}"]],
    }
    found = await tab.page.evaluate(PARSE, list(streams))
    events = [each if isinstance(each, str) else [[e["event"], e["data"]] for e in each] for each in found]
    assert dict(zip(streams, events, strict=True)) == streams
