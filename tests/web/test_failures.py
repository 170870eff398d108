"""Failures are told in words, with what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.ir.deltas import Content, Start
from millstream.ir.errors import engine_failed, invalid, overloaded
from support.live import Live
from web.conftest import Tab
from web.plays import saying, turns

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHAT = "**/v1/chat/completions"
REFUSED = "Failed to load resource"


async def failure(tab: Tab) -> str:
    note: str = await tab.page.locator(".message .failure:visible").inner_text()
    return " ".join(note.split())


async def test_a_full_queue_says_when_to_try_again(tab: Tab, live: Live) -> None:
    tab.allow(REFUSED)
    live.provider.refuse = overloaded("The queue is full.", retry_after=30)
    await tab.answer("Q")
    said = await failure(tab)
    assert said.startswith("Too much at once. The queue is full. It asks to wait 30 s.")
    assert "Try again (in " in said
    live.provider.refuse = None
    await tab.page.get_by_role("button", name="Try again").click()
    await tab.page.locator(".words", has_text="Hello 0").wait_for()
    # What failed before it began leaves no version behind.
    assert not await tab.page.locator(".message.assistant .branches").is_visible()
    assert turns(live.provider) == [("user", "Q")]


async def test_a_limit_of_the_key_is_told_once(tab: Tab, live: Live) -> None:
    tab.allow(REFUSED)
    live.provider.refuse = overloaded("Rate limit reached. Try again in 12 s.", retry_after=12)
    await tab.answer("Q")
    said = await failure(tab)
    assert said.startswith("Too much at once. Rate limit reached. Try again in 12 s. Try again (in ")


async def test_a_refused_request_names_the_field(tab: Tab, live: Live) -> None:
    tab.allow(REFUSED)
    live.provider.refuse = invalid("The seed is too large.", param="seed")
    await tab.answer("Q")
    assert "The request was refused. The seed is too large. (seed)" in await failure(tab)


async def test_an_error_in_mid_stream_keeps_what_came(tab: Tab, live: Live) -> None:
    live.provider.script = lambda request: [Start(5), Content("Half"), engine_failed("The engine died.")]
    answer = await tab.answer("Q")
    assert "The answer broke off. The engine died." in await failure(tab)
    assert await answer.locator(".words").inner_text() == "Half"
    live.provider.script = saying("Whole")
    await tab.page.get_by_role("button", name="Try again").click()
    await tab.page.locator(".words", has_text="Whole").wait_for()
    await tab.idle()
    assert await tab.page.locator(".message.assistant .branches").inner_text() == "2 / 2"


async def test_a_stream_that_just_ends_is_no_answer(tab: Tab) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "cut"}, "finish_reason": None}]}

    async def cut(route: Any) -> None:
        await route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps(chunk)}\n\n")

    await tab.page.route(CHAT, cut)
    answer = await tab.answer("Q")
    assert "The answer broke off." in await failure(tab)
    assert await answer.locator(".words").inner_text() == "cut"
    await tab.page.unroute(CHAT)

    async def nonsense(route: Any) -> None:
        await route.fulfill(content_type="text/event-stream", body="data: {{{\n\n")

    await tab.page.route(CHAT, nonsense)
    await tab.answer("Q")
    assert "no part of an answer" in await tab.page.locator(".message .failure:visible").last.inner_text()
    await tab.page.unroute(CHAT)


async def test_a_server_that_is_gone_is_told(tab: Tab) -> None:
    tab.allow("ERR_CONNECTION_REFUSED")

    async def gone(route: Any) -> None:
        await route.abort("connectionrefused")

    await tab.page.route(CHAT, gone)
    await tab.answer("Q")
    assert "No connection. The server does not answer." in await failure(tab)
    await tab.page.unroute(CHAT)


async def test_a_key_is_asked_for_and_the_question_goes_on(tab: Tab, live: Live) -> None:
    tab.allow(REFUSED)
    keys: list[str | None] = []

    async def guard(route: Any) -> None:
        keys.append(route.request.headers.get("authorization"))
        if keys[-1] == "Bearer sk-right":
            await route.continue_()
            return
        code = "missing_api_key" if keys[-1] is None else "invalid_api_key"
        error = {"message": "Incorrect API key.", "type": "invalid_request_error", "code": code}
        await route.fulfill(status=401, json={"error": {**error, "param": None}})

    page = tab.page
    await page.route("**/v1/**", guard)
    await tab.say("Q")
    await page.wait_for_selector("#settings[open] #key-asked:not([hidden])")
    assert await page.evaluate("document.activeElement.id") == "key"
    assert (await page.inner_text("#key-asked")).startswith("The server asks for a key. The person")
    await page.fill("#key", "sk-wrong")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#settings[open] #key-asked:not([hidden])")
    assert (await page.inner_text("#key-asked")).startswith("The server does not know this key. The person")
    await page.fill("#key", "sk-right")
    await page.keyboard.press("Enter")
    await page.locator(".words", has_text="Hello 0").wait_for()
    await page.unroute("**/v1/**")
    assert {"Bearer sk-wrong", "Bearer sk-right"} <= set(keys)
    assert keys[0] is None
    assert await page.evaluate("[localStorage['millstream.key'], sessionStorage['millstream.key']]") == [
        None,
        "sk-right",
    ]


async def test_nothing_of_a_key_is_sent_that_a_header_cannot_carry(tab: Tab) -> None:
    await tab.page.click("#settings-open")
    await tab.page.fill("#key", "schlüssel\u2003")
    await tab.page.get_by_role("button", name="Save key").click()
    assert "letters, digits" in await tab.page.inner_text("#settings-status")
    await tab.page.fill("#key", "sk-1")
    await tab.page.get_by_label("Remember it").check()
    await tab.page.get_by_role("button", name="Save key").click()
    assert await tab.page.evaluate("localStorage['millstream.key']") == "sk-1"
    await tab.page.click("#settings-open")
    await tab.page.get_by_role("button", name="Forget it").click()
    assert await tab.page.evaluate("localStorage['millstream.key']") is None
    await tab.page.keyboard.press("Escape")
