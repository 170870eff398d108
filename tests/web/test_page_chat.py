"""The chat against a live server."""

from __future__ import annotations

import json

import pytest

from support.live import Live
from web.conftest import Tab
from web.plays import Gate, calling, saying, thinking, turns, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_answer_is_shown_while_it_comes(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = saying("**One** two", gate=gate, then=" three")
    page = tab.page
    await page.fill("#prompt", "Count\nplease")
    await page.press("#prompt", "Enter")
    answer = page.locator(".message.assistant")
    await answer.locator("strong", has_text="One").wait_for()
    assert await answer.get_attribute("aria-busy") == "true"
    assert await page.get_attribute("#send", "aria-label") == "Stop"
    gate.open()
    await tab.idle()
    assert await answer.locator(".words").inner_text() == "One two three"
    meta = await answer.locator(".meta").inner_text()
    assert meta.startswith("tiny · 20 tokens · ")
    assert "tokens/s · first after " in meta
    assert meta.endswith("prompt 37 (12 cached)")
    assert await page.locator(".message.user .said").inner_text() == "Count\nplease"
    assert turns(live.provider) == [("user", "Count\nplease")]
    await tab.answer("and more")
    assert turns(live.provider) == [("user", "Count\nplease"), ("assistant", "**One** two three"), ("user", "and more")]


async def test_thinking_is_folded_and_sent_back(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = thinking("Let me *see*", "Yes.", gate=gate)
    await tab.say("Is it?")
    details = tab.page.locator("details.thinking")
    await details.locator("summary", has_text="Thinking…").wait_for()
    assert await details.get_attribute("open") is None
    gate.open()
    await tab.idle()
    assert await details.locator("summary").inner_text() == "Thought (21 tokens)"
    assert not await tab.page.locator(".thought").is_visible()
    await details.locator("summary").click()
    assert await tab.page.locator(".thought").inner_text() == "Let me see"
    assert await tab.page.locator(".words").inner_text() == "Yes."
    await tab.answer("Sure?")
    assert live.provider.requests[-1].messages[1].reasoning == "Let me *see*"


async def test_calls_are_shown_and_their_results_go_on(tab: Tab, live: Live) -> None:
    live.provider.script = calling(("get_weather", '{"city":"Bonn","days":[1,2]}'), ("now", "{}"), then="Sunny.")
    answer = await tab.answer("Weather?")
    calls = answer.locator(".call")
    assert await calls.locator(".call-name").all_inner_texts() == ["get_weather", "now"]
    shown = await calls.nth(0).locator(".call-arguments").inner_text()
    assert shown == json.dumps({"city": "Bonn", "days": [1, 2]}, indent=2)
    await tab.page.fill("#prompt", "hello")
    assert await tab.page.is_disabled("#send")
    assert "waits for the result" in await tab.page.inner_text("#composer-hint")
    await calls.nth(0).locator("textarea").fill("20 °C")
    await calls.nth(1).locator("textarea").fill("noon")
    await tab.page.get_by_role("button", name="Send results").click()
    await tab.page.locator(".message.assistant", has_text="Sunny.").wait_for()
    await tab.idle()
    asked = live.provider.requests[-1].messages
    assert [call.name for call in asked[1].tool_calls] == ["get_weather", "now"]
    assert [(turn.tool_call_id, turn.content) for turn in asked[2:]] == [("call_0", "20 °C"), ("call_1", "noon")]
    assert await tab.page.locator(".call-given").all_inner_texts() == ["20 °C", "noon"]
    assert await tab.page.inner_text("#composer-hint") == ""


async def test_stop_ends_the_request_in_the_server(tab: Tab, live: Live) -> None:
    gate = Gate()
    live.provider.script = saying("Once upon", gate=gate, then=" a time")
    await tab.say("Tell")
    await tab.page.locator(".words", has_text="Once upon").wait_for()
    assert live.provider.closed == 0
    await tab.page.press("#prompt", "Escape")
    await tab.idle()
    await until(lambda: live.provider.closed == 1, "the server goes on for nobody")
    answer = tab.page.locator(".message.assistant")
    assert await answer.locator(".words").inner_text() == "Once upon"
    assert "Stopped" in await answer.locator(".note").inner_text()
    assert await tab.page.evaluate("document.activeElement.id") == "prompt"


async def test_another_answer_is_a_version_beside_the_first(tab: Tab, live: Live) -> None:
    live.provider.script = saying("first")
    await tab.answer("Q")
    live.provider.script = saying("second")
    await tab.page.get_by_role("button", name="Answer again").click()
    answer = tab.page.locator(".message.assistant")
    await answer.locator(".words", has_text="second").wait_for()
    await tab.idle()
    assert turns(live.provider) == [("user", "Q")]
    assert await answer.locator(".branches").inner_text() == "2 / 2"
    await answer.get_by_role("button", name="Version before").click()
    assert await answer.locator(".words").inner_text() == "first"
    await tab.answer("next")
    assert turns(live.provider)[1] == ("assistant", "first")


async def test_an_edited_question_is_asked_anew_and_the_old_one_kept(tab: Tab, live: Live) -> None:
    await tab.answer("old")
    await tab.answer("later")
    edit = tab.page.get_by_role("button", name="Edit and send again")
    await edit.first.click()
    await tab.page.keyboard.press("Escape")
    assert await tab.page.locator(".said").all_inner_texts() == ["old", "later"]
    await edit.first.click()
    field = tab.page.get_by_role("textbox", name="Your message")
    assert await field.input_value() == "old"
    await field.fill("new")
    await tab.page.locator(".edit").get_by_role("button", name="Send").click()
    await tab.page.locator(".said", has_text="new").wait_for()
    await tab.idle()
    assert turns(live.provider) == [("user", "new")]
    assert await tab.page.locator(".said").all_inner_texts() == ["new"]
    await tab.page.get_by_role("button", name="Version before").first.click()
    assert await tab.page.locator(".said").all_inner_texts() == ["old", "later"]


async def test_parameters_reach_the_model(tab: Tab, live: Live) -> None:
    page = tab.page
    await page.click("#parameters-open")
    given = {"system": "Be brief.", "temperature": "0,5", "top_p": "0.9", "max_completion_tokens": "64", "seed": "-7",
             "stop": "END\n##", "tools": '{"name": "now", "description": "the time"}'}  # fmt: skip
    for name, text in given.items():
        await page.fill(f"#parameter-{name}", text)
    await page.select_option("#parameter-response_kind", "json_schema")
    await page.fill("#parameter-response_format", '{"type": "object"}')
    await page.locator("#parameters").get_by_role("button", name="Save").click()
    assert await page.get_attribute("#parameters-open", "aria-label") == "Parameters, 8 set"
    await tab.answer("Q")
    request = live.provider.requests[-1]
    assert turns(live.provider) == [("system", "Be brief."), ("user", "Q")]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed) == (0.5, 0.9, 64, -7)
    assert sampling.stop == ("END", "##")
    assert (request.response_format.kind, request.response_format.schema) == ("json_schema", {"type": "object"})
    assert [tool.name for tool in request.tools] == ["now"]
    await tab.reload()
    await page.click("#parameters-open")
    assert await page.input_value("#parameter-temperature") == "0.5"
    assert await page.input_value("#parameter-stop") == "END\n##"
    await page.locator("#parameters").get_by_role("button", name="Reset").click()
    await page.locator("#parameters").get_by_role("button", name="Save").click()
    await tab.answer("Q")
    assert live.provider.requests[-1].sampling.temperature == 1.0
    assert live.provider.requests[-1].tools == ()


async def test_wrong_parameters_are_told_at_their_fields(tab: Tab) -> None:
    page = tab.page
    await page.click("#parameters-open")
    wrong = {"temperature": "3", "top_p": "0", "max_completion_tokens": "0", "seed": "1e3", "stop": "a\n" * 17,
             "tools": "{", "response_format": "[]"}  # fmt: skip
    await page.select_option("#parameter-response_kind", "json_schema")
    for name, text in wrong.items():
        await page.fill(f"#parameter-{name}", text)
    await page.locator("#parameters").get_by_role("button", name="Save").click()
    for name in wrong:
        assert await page.get_attribute(f"#parameter-{name}", "aria-invalid") == "true", name
        assert await page.inner_text(f"#parameter-{name}-problem"), name
    assert await page.evaluate("document.activeElement.id") == "parameter-temperature"
    await page.keyboard.press("Escape")
    assert await page.evaluate("document.activeElement.id") == "parameters-open"


async def test_code_and_messages_are_copied(tab: Tab, live: Live) -> None:
    live.provider.script = saying("```sh\nls -l\n```\nthat is it")
    answer = await tab.answer("How?")
    await answer.get_by_role("button", name="Copy code").click()
    await answer.get_by_role("button", name="Copied").wait_for()
    assert await tab.page.evaluate("navigator.clipboard.readText()") == "ls -l"
    await answer.get_by_role("button", name="Copy message").click()
    assert await tab.page.evaluate("navigator.clipboard.readText()") == "```sh\nls -l\n```\nthat is it"


async def test_copying_works_without_the_clipboard_api(tab: Tab) -> None:
    """Over plain HTTP from another machine there is none."""
    done = await tab.page.evaluate(
        """async () => {
          Object.defineProperty(navigator, "clipboard", { value: undefined, configurable: true });
          const { copy } = await import("/assets/lib/clipboard.js");
          document.querySelector("#prompt").focus();
          const done = await copy("over http");
          delete navigator.clipboard;
          return [done, document.activeElement.id, await navigator.clipboard.readText()];
        }"""
    )
    assert done == [True, "prompt", "over http"]


ATTACK = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><iframe src='javascript:alert(1)'></iframe>\n\n"
    "[click](javascript:alert(1)) <a href=javascript:alert(1)>x</a> ![x](https://evil.example/track.png)\n\n"
    "```html\n<script>alert(1)</script>\n```\n\n| <b onmouseover=alert(1)>x</b> | b |\n"
    "|-|-|\n| <svg onload=alert(1)> | |"
)


async def test_what_anybody_writes_is_text(tab: Tab, live: Live) -> None:
    """In an answer, its thinking, its calls, a title, and a failure."""
    dialogs: list[str] = []

    async def dismiss(dialog) -> None:
        dialogs.append(dialog.message)
        await dialog.dismiss()

    tab.page.on("dialog", dismiss)
    live.provider.script = thinking(ATTACK, ATTACK)
    answer = await tab.answer(ATTACK)
    await answer.locator("summary").click()
    live.provider.script = calling((ATTACK, json.dumps({"a": ATTACK})))
    await tab.answer("call")
    found = await tab.page.evaluate(
        """() => {
          const own = document.querySelector("#main");
          const kinds = "script, iframe, object, embed, #thread img, #thread svg:not(.glyph), [style]:not(textarea)";
          const bad = own.querySelectorAll(kinds);
          const inline = [...own.querySelectorAll("*")].filter((each) => (
            each.getAttributeNames().some((name) => name.startsWith("on"))));
          const links = [...own.querySelectorAll("#thread a")].map((each) => each.href);
          return [bad.length, inline.length, [...new Set(links)]];
        }"""
    )
    assert found == [0, 0, ["https://evil.example/track.png"]]
    assert dialogs == []
    shown = tab.page.locator(".message.assistant").first.locator(".words pre code")
    assert await shown.inner_text() == "<script>alert(1)</script>"


async def test_what_the_server_left_out_is_told(tab: Tab) -> None:
    async def warn(route) -> None:
        response = await route.fetch()
        await route.fulfill(response=response, headers={**response.headers, "x-millstream-warning": "a, b ignored"})

    await tab.page.route("**/v1/chat/completions", warn)
    answer = await tab.answer("Q")
    await tab.page.unroute("**/v1/chat/completions")
    assert await answer.locator(".note").inner_text() == "Left out by the server: a, b ignored"
