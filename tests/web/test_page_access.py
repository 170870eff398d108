"""The page for people with a phone, a keyboard, a screen reader, and either look."""

from __future__ import annotations

import pytest

from support.live import Live
from web.audit import faults, wider
from web.conftest import PHONE, OpenTab, Tab
from web.played_events import PlayedEvents
from web.plays import Gate, calling, saying, thinking

pytestmark = pytest.mark.asyncio(loop_scope="session")

RICH = (
    "# A heading\n\nText with `code`, a [link](https://x.example) and **weight**.\n\n- one\n- two\n\n> quoted\n\n"
    f"```py\n{'long_line = ' * 30}\n```\n\n|{' column |' * 12}\n|{'-|' * 12}\n|{' wide cell |' * 12}\n\n"
    f"{'unbroken' * 40}"
)

AT_THE_END = """() => {
  const { scrollHeight, scrollTop, clientHeight } = document.querySelector("#scroller");
  return scrollHeight - scrollTop - clientHeight < 5;
}"""


@pytest.mark.parametrize("look", ["light", "dark"])
async def test_names_roles_and_contrast(open_tab: OpenTab, live: Live, events: PlayedEvents, look: str) -> None:
    async with open_tab(color_scheme=look) as tab:
        await tab.open()
        page = tab.page
        assert await faults(page) == []
        live.provider.script = thinking("why", RICH)
        await (await tab.answer(RICH)).locator("summary").click()
        live.provider.script = calling(("tool", '{"a": 1}'))
        await tab.answer("call")
        assert await faults(page) == []
        for opener, dialog in (("#parameters-open", "#parameters"), ("#settings-open", "#settings")):
            await page.click(opener)
            assert await faults(page) == [], dialog
            await page.locator(dialog).get_by_role("button", name="Close").click()
        await page.get_by_role("link", name="Dashboard").click()
        await page.locator("#connection[data-state=live]").wait_for()
        assert await faults(page) == []


async def test_a_phone_scrolls_one_way_only(open_tab: OpenTab, live: Live, events: PlayedEvents) -> None:
    live.provider.script = saying(RICH)
    async with open_tab(viewport=PHONE, has_touch=True, is_mobile=True) as tab:
        await tab.open()
        page = tab.page
        assert await wider(page) == []
        await tab.answer(RICH)
        assert await wider(page) == []
        live.provider.script = calling(("a_tool_with_a_long_name_" * 3, '{"argument": "' + "x" * 200 + '"}'))
        await tab.answer("call")
        assert await wider(page) == []
        await page.click("#parameters-open")
        assert await wider(page) == []
        await page.locator("#parameters").get_by_role("button", name="Close").click()
        # The drawer: closed it is out of reach, open it is all that is.
        assert await page.evaluate("document.querySelector('#sidebar').inert")
        await page.locator("#chat-view [data-opens-sidebar]").click()
        assert await page.evaluate("[document.querySelector('#main').inert, document.activeElement.id]") == [
            True,
            "sidebar-close",
        ]
        assert await wider(page) == []
        await page.keyboard.press("Escape")
        assert await page.evaluate("document.activeElement.hasAttribute('data-opens-sidebar')")
        await page.locator("#chat-view [data-opens-sidebar]").click()
        await page.get_by_role("link", name="Dashboard").click()
        await page.locator("#connection[data-state=live]").wait_for()
        assert await wider(page) == []
        # Enter is a new line where there is no key for both.
        await page.goto(f"{tab.url}/#/")
        await page.fill("#prompt", "a")
        await page.press("#prompt", "Enter")
        assert await page.input_value("#prompt") == "a\n"


async def test_everything_by_keys(tab: Tab, live: Live) -> None:
    page, keys = tab.page, tab.page.keyboard
    live.provider.script = saying("```\ncode\n```")
    await page.evaluate("document.activeElement.blur()")
    await keys.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    assert await page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    visited: list[str] = []
    for _ in range(20):
        await keys.press("Tab")
        name, ring = await page.evaluate(
            """() => {
              const own = document.activeElement;
              const box = own.closest(".composer") && own.localName === "textarea" ? own.closest(".composer") : own;
              return [own.id || own.dataset.view || own.localName, getComputedStyle(box).outlineStyle];
            }"""
        )
        assert ring != "none", name
        visited.append(name)
        if name == "prompt":
            break
    assert visited == ["chat", "dashboard", "new-chat", "settings-open", "model", "parameters-open", "prompt"]
    await keys.type("Hello")
    await keys.press("Shift+Enter")
    await keys.type("you")
    await keys.press("Enter")
    await page.locator("pre code").wait_for()
    await tab.idle()
    assert await page.locator(".said").inner_text() == "Hello\nyou"
    await keys.press("Shift+Tab")
    assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "Answer again"
    await page.focus("#parameters-open")
    await keys.press("Enter")
    assert await page.evaluate("document.querySelector('#parameters').contains(document.activeElement)")
    await keys.press("Escape")
    assert await page.evaluate("document.activeElement.id") == "parameters-open"


async def test_a_screen_reader_hears_of_an_answer_in_sentences(tab: Tab, live: Live) -> None:
    gate = Gate()
    await tab.page.evaluate(
        """() => {
          window.heard = [];
          const region = document.querySelector("#announcer");
          new MutationObserver(() => region.textContent && window.heard.push(region.textContent))
            .observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    text = "The first sentence. The second one. And"
    live.provider.script = saying(text, gate=gate, then=" the third.")
    await tab.say("Q")
    await tab.page.wait_for_function("() => window.heard.length > 0")
    gate.open()
    await tab.idle()
    await tab.page.wait_for_function("() => window.heard.at(-1).endsWith('Answer complete.')")
    heard: list[str] = await tab.page.evaluate("window.heard")
    # Each piece of text once, in order, whole sentences, and far fewer times than there were chunks.
    assert "".join(f"{each.strip()} " for each in heard).strip() == f"{text} the third. Answer complete."
    assert len(heard) <= 3
    assert await tab.page.get_attribute(".message.assistant", "aria-live") is None


async def test_the_look_is_that_of_the_system_or_the_chosen_one(tab: Tab) -> None:
    page = tab.page

    async def is_dark() -> bool:
        color = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color[4:-1].split(","))) < 300

    await page.emulate_media(color_scheme="dark")
    assert await is_dark()
    await page.click("#settings-open")
    await page.get_by_label("Light", exact=True).check()
    assert not await is_dark()
    await tab.reload()
    assert not await is_dark()
    await page.emulate_media(color_scheme="light")
    await page.click("#settings-open")
    await page.get_by_label("Dark", exact=True).check()
    assert await is_dark()
    await page.get_by_label("As the system").check()
    assert not await is_dark()


async def test_the_view_stays_where_the_person_reads(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = saying("line\n\n" * 60, gate=gate, then="more\n\n" * 20)
    page = tab.page
    await tab.say("Q")
    await page.locator(".words p").nth(59).wait_for()
    await page.wait_for_function(AT_THE_END)
    await page.evaluate("document.querySelector('#scroller').scrollTop = 100")
    await page.locator("#jump:not([hidden])").wait_for()
    gate.open()
    await tab.idle()
    assert await page.evaluate("document.querySelector('#scroller').scrollTop") == 100
    await page.click("#jump")
    await page.wait_for_function(AT_THE_END)
