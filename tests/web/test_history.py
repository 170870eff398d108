"""Conversations stay in the browser."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from support.live import Live
from web.conftest import Tab
from web.plays import Gate, saying, until

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEPT = """async () => {
  const { openStore } = await import("/assets/chat/store.js");
  const store = await openStore(() => {});
  return JSON.stringify(await store.all()).includes("So far");
}"""
TITLES = "#conversations .title"


async def test_they_survive_a_reload(tab: Tab, live: Live) -> None:
    page = tab.page
    await tab.answer("First thing")
    await page.click("#new-chat")
    await tab.answer("Second thing")
    await tab.reload()
    assert await page.locator(TITLES).all_inner_texts() == ["Second thing", "First thing"]
    assert await page.locator(".said").all_inner_texts() == ["Second thing"]
    await page.get_by_role("link", name="First thing").click()
    await page.locator(".said", has_text="First thing").wait_for()
    assert await page.inner_text("#chat-title") == "First thing"
    assert await page.locator(".words").inner_text() == "Hello 0"


async def test_what_came_before_a_reload_is_kept(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = saying("So far", gate=gate)
    await tab.say("Go")
    await tab.page.locator(".words", has_text="So far").wait_for()
    # Kept once a second; what a browser still writes while it leaves a page is its own affair.
    for _ in range(200):  # not `wait_for_function`, which takes the promise itself for a yes
        if await tab.page.evaluate(KEPT):
            break
        await asyncio.sleep(0.1)
    await tab.reload()
    await tab.page.locator(".words", has_text="So far").wait_for()
    assert "Stopped" in await tab.page.locator(".note").inner_text()
    await until(lambda: live.provider.closed == 1, "the server goes on for nobody")


async def test_an_answer_goes_on_while_another_conversation_is_shown(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = saying("begin", gate=gate, then=" end")
    page = tab.page
    await tab.say("Long one")
    await page.locator(".words", has_text="begin").wait_for()
    await page.click("#new-chat")
    live.provider.script = saying("short")
    answer = await tab.answer("Short one")
    assert await answer.locator(".words").inner_text() == "short"
    await page.get_by_role("link", name="Long one").click()
    await page.locator(".words", has_text="begin").wait_for()
    assert await page.get_attribute("#send", "aria-label") == "Stop"
    gate.open()
    await tab.idle()
    assert await page.locator(".words").inner_text() == "begin end"


async def test_rename_export_delete_and_import(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    await tab.answer("To be kept")
    menu = page.locator("#conversations .menu")
    await menu.locator("summary").click()
    await menu.get_by_role("button", name="Rename").click()
    await page.fill("#question-field", "Kept <b>")
    await page.keyboard.press("Enter")
    await page.locator(TITLES, has_text="Kept <b>").wait_for()
    await menu.locator("summary").click()
    async with page.expect_download() as download:
        await menu.get_by_role("button", name="Export").click()
    file = tmp_path / (await download.value).suggested_filename
    await (await download.value).save_as(file)
    assert file.name == "kept-b.json"
    await menu.get_by_role("button", name="Delete").click()
    await page.click("#question-yes")
    await page.wait_for_selector("#conversations-empty:not([hidden])")
    assert await page.inner_text("#chat-title") == "New conversation"
    await page.click("#settings-open")
    await page.set_input_files("#import-file", file)
    await page.locator("#settings-status", has_text="Imported: 1.").wait_for()
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Kept <b>").click()
    await page.locator(".said", has_text="To be kept").wait_for()
    assert await page.locator(".said").all_inner_texts() == ["To be kept"]
    assert "20 tokens" not in await page.locator(".meta").inner_text()
    assert "3 tokens" in await page.locator(".meta").inner_text()


async def test_what_is_deleted_in_mid_answer_does_not_come_back(tab: Tab, live: Live) -> None:
    page = tab.page
    live.provider.script = saying("begin", gate=Gate())
    await tab.say("Unwanted")
    await page.locator(".words", has_text="begin").wait_for()
    await page.locator("#conversations summary").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.click("#question-yes")
    await page.wait_for_selector("#conversations-empty:not([hidden])")
    await until(lambda: live.provider.closed == 1, "the server goes on for nobody")
    await tab.reload()
    assert await page.locator(TITLES).count() == 0


def export(**changes) -> str:
    message = {"id": "a", "parent": None, "role": "user", "content": "x", "created": 1}
    conversation = {"id": "c", "title": "t", "messages": {"a": message}, "leaf": "a", "parameters": {}}
    return json.dumps(
        {"format": "millstream-conversations", "version": 1, "conversations": [{**conversation, **changes}]}
    )


BAD = {
    "not JSON": ("{", "not JSON"),
    "foreign": ('{"messages": []}', "not an export"),
    "newer": ('{"format": "millstream-conversations", "version": 2, "conversations": []}', "version 2"),
    "no messages": (export(messages=3), "no messages"),
    "role": (export(messages={"a": {"id": "a", "role": "root"}}), "unknown role"),
    "circle": (
        export(messages={i: {"id": i, "parent": p, "role": "user"} for i, p in (("a", "b"), ("b", "a"))}),
        "not a tree",
    ),
    "orphan": (export(messages={"a": {"id": "a", "parent": "z", "role": "user"}}), "not a tree"),
}


async def test_a_file_that_is_no_export_is_refused_in_words(tab: Tab) -> None:
    said = await tab.page.evaluate(
        """async (texts) => {
          const { imported } = await import("/assets/chat/transfer.js");
          return texts.map((text) => { try { imported(text); return ""; } catch (error) { return error.message; } });
        }""",
        [text for text, _ in BAD.values()],
    )
    for (name, (_, words)), message in zip(BAD.items(), said, strict=True):
        assert words in message, name


async def test_what_a_file_says_too_much_is_left_out(tab: Tab) -> None:
    parameters = {"temperature": 0.5, "top_p": 7, "stop": ["a"], "evil": 1, "response_format": {"type": "x"}}
    answer = {"id": "b", "parent": "a", "role": "assistant", "calls": [{"id": 3}, "x"], "state": "open", "usage": 5}
    first = {"id": "a", "parent": None, "role": "user", "content": {"x": 1}}
    [found] = await tab.page.evaluate(
        "async (text) => (await import('/assets/chat/transfer.js')).imported(text)",
        export(messages={"a": first, "b": answer}, parameters=parameters, leaf="zz", model=3),
    )
    assert found["parameters"] == {"temperature": 0.5, "stop": ["a"]}
    assert found["id"] != "c"
    assert found["leaf"] == "b"
    assert found["model"] is None
    assert found["messages"]["a"]["content"] == ""
    read = found["messages"]["b"]
    assert (read["state"], read["usage"], read["calls"]) == ("stopped", None, [{"id": "", "name": "", "arguments": ""}])
