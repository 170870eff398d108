"""Every page and every action, on a played server, as a user sees them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from textual.widgets import Button, DataTable, Input

from millstream.admin.views import RequestDetail, TimelineEvent
from millstream.tui.pages.chat import ChatPage, Composer
from tui import demo
from tui.driving import LARGE, looking, shown
from tui.played_server import chunk, problem
from tui.waiting import until

FIRST = "req_6512bd43"
"""The oldest request, which is on top."""


async def test_keys_and_clicks_go_to_the_pages(tmp_path: Path) -> None:
    async with looking(demo.script(2), tmp_path) as driver:
        await driver.pilot.click("PageRow", offset=(26, 0))
        await driver.on("requests")
        await driver.press("question_mark")
        await driver.on("help")
        await driver.press("f4", "1")  # the chat's field takes the digit
        await driver.on("chat")
        await driver.press("escape", "1")
        await driver.on("overview")


async def test_the_overview_tells_speed_memory_and_waits(tmp_path: Path) -> None:
    async with looking(demo.script(3), tmp_path, LARGE) as driver:
        await driver.shows(
            "Output", "tok/s", "Time to first token", "p95 940 ms", "step budget 1", "kv cache 1, paused reader 1",
            "99% of 1024", "restarts 1", "resumed 4", "18.7M", "Open requests", "req_8f14e45f",
        )  # fmt: skip


async def test_a_request_is_opened_and_watched_on_every_surface(tmp_path: Path) -> None:
    async with looking(demo.script(2), tmp_path) as driver:
        await driver.press("2", "down", "down", "enter")
        await driver.shows("req_8f14e45f", "0 → -5 by an operator", "chatcmpl-8f14e45f")
        await driver.press("w")
        await driver.shows("response.output_text.delta")
        await driver.press("w")
        await driver.shows("content_block_delta", "event:")
        await driver.press("escape")
        await driver.shows("oldest first")


async def test_a_request_that_has_ended_says_so(tmp_path: Path) -> None:
    script = demo.script(2)
    ended = TimelineEvent(seconds=9.9, kind="cancelled", note="by an operator")
    request = msgspec.structs.replace(demo.requests()[4], state="ended")
    script.details[FIRST] = RequestDetail(request=request, timeline=[ended])
    script.hold_wire = False
    async with looking(script, tmp_path) as driver:
        await driver.press("2", "enter")
        await driver.shows("by an operator", "end of the stream", "cancelled ·")
        await driver.press("c")  # there is nothing left to cancel, so that nothing asks
        assert driver.page.NAME == "requests"


async def test_a_request_is_acted_on_after_a_yes(tmp_path: Path) -> None:
    script = demo.script(2)
    steps = (
        (["c"], "y", f"Cancel {FIRST}?", "cancel", {}),
        (["p"], "y", f"Resume {FIRST}?", "resume", {}),
        (["i", "minus", "7"], "enter", f"Priority of {FIRST}", "priority", {"priority": -7}),
        (["down", "p"], "y", "Pause req_d3d94468?", "pause", {}),
    )
    async with looking(script, tmp_path) as driver:
        await driver.press("2")
        for at, (keys, yes, question, verb, body) in enumerate(steps):
            await driver.press(*keys)
            await driver.shows(question)
            assert len(script.calls) == at
            await driver.press(yes)
            await until(lambda at=at: len(script.calls) > at)
            assert script.calls[at] == ("POST", f"/v1/admin/requests/{question.split()[-1].strip('?')}/{verb}", body)


async def test_nothing_is_done_without_a_yes(tmp_path: Path) -> None:
    script = demo.script(2)
    async with looking(script, tmp_path) as driver:
        await driver.press("2")
        for keys in (["c", "n"], ["c", "enter"], ["i", "5", "escape"]):
            await driver.press(*keys)
            await driver.on("requests")
        await driver.press("1")
        await driver.on("overview")
    assert script.calls == []


async def test_a_click_answers_and_what_could_not_be_done_is_told(tmp_path: Path) -> None:
    script = demo.script(2)
    script.refuse[f"/v1/admin/requests/{FIRST}/cancel"] = lambda: problem(403, "This key [b]may[/b] not.")
    async with looking(script, tmp_path) as driver:
        await driver.press("2", "c")
        await until(lambda: driver.app.screen.query(Button))
        await driver.pilot.click("#yes")
        await driver.shows("Not done", "403: This key [b]may[/b] not.")


async def test_the_cursor_stays_on_its_request_while_others_come_and_go(tmp_path: Path) -> None:
    script = demo.script(1)
    async with looking(script, tmp_path) as driver:
        await driver.press("2", "down", "down")
        await driver.on("requests")
        table = driver.page.query_one(DataTable)
        before = demo.snapshot(1)
        gone = [each for each in before.requests if each.id not in (FIRST, "req_45c48cce")]
        await script.tell(msgspec.structs.replace(before, requests=gone))
        await until(lambda: table.row_count == 3)
        await driver.press("c")
        await driver.shows("Cancel req_8f14e45f?")


async def test_models_are_acted_on_after_a_yes(tmp_path: Path) -> None:
    script = demo.script(2)
    steps = (
        (["down", "u"], f"Unload {demo.SMALL}?", "unload", demo.SMALL),
        (["down", "x"], "Stop the pull of gemma-3-270m-it?", "pull/cancel", "gemma-3-270m-it"),
        (["down", "l"], "Load my-finetune?", "load", "my-finetune"),
        (["down", "p"], "Pull qwen2.5-1.5b-instruct?", "pull", "qwen2.5-1.5b-instruct"),
    )
    async with looking(script, tmp_path) as driver:
        await driver.press("3")
        await driver.shows("my-finetune")
        for at, (keys, question, verb, name) in enumerate(steps):
            await driver.press(*keys)
            await driver.shows(question)
            assert len(script.calls) == at
            await driver.press("y")
            await until(lambda at=at: len(script.calls) > at)
            assert script.calls[at] == ("POST", f"/v1/admin/models/{verb}", {"model": name})


async def test_the_cursor_stays_on_its_model_when_their_order_changes(tmp_path: Path) -> None:
    script = demo.script(1)
    async with looking(script, tmp_path) as driver:
        await driver.press("3", "down")
        await driver.shows("SmolLM2 135M Instruct, Q4_1")
        first, second, *others = demo.models()
        await script.tell(msgspec.structs.replace(demo.snapshot(1), models=[*others, first, second]))
        await until(lambda: driver.page.query_one(DataTable).cursor_row == 4)
        await driver.press("u")
        await driver.shows(f"Unload {demo.SMALL}?", "2 open requests are finished first")


async def test_models_show_progress_and_what_failed(tmp_path: Path) -> None:
    async with looking(demo.script(2), tmp_path) as driver:
        await driver.press("3", "down", "down")
        await driver.shows("★ qwen2.5-coder-0.5b", "63%", "159 MB of 253 MB")
        await driver.press("down")
        await driver.shows("IQ2_XS is not supported")


async def test_chat_streams_folds_thoughts_and_sends_the_conversation(tmp_path: Path) -> None:
    script = demo.script(2)
    script.answers = [demo.answer("It is [bold]42[/] \x1b[31m.", "Let me \x07 think."), demo.answer("Bye.", "")]  # type: ignore[list-item]
    async with looking(script, tmp_path) as driver:
        await driver.press("4", *"hi1", "ctrl+j", "q", "enter")
        await driver.shows("It is [bold]42[/] ␛[31m.", "▶ thinking (4 words)", "4 tokens in")
        assert "Let me" not in shown(driver.app)
        await driver.press("ctrl+t")
        await driver.shows("Let me ␇ think.")
        await driver.press("k", "enter")
        await driver.shows("Bye.")
    sent = script.calls[-1][2]
    assert sent["messages"] == [
        {"role": "user", "content": "hi1\nq"},
        {"role": "assistant", "content": "It is [bold]42[/] \x1b[31m."},
        {"role": "user", "content": "k"},
    ]
    assert sent["model"] == demo.MODEL


async def test_chat_stops_edits_and_asks_again(tmp_path: Path) -> None:
    script = demo.script(2)
    script.hold_answer.clear()
    script.answers = [[chunk(content="One two"), "hold"], [chunk("stop", content="Three")]]
    async with looking(script, tmp_path) as driver:
        await driver.press("4", "a", "enter")
        await driver.shows("One two", "…")
        await driver.press("escape")
        await driver.shows("✖ stopped")
        await driver.press("up")
        await until(lambda: driver.page.query_one(Composer).text == "a")
        await driver.hides("One two")
        await driver.press("b", "enter")
        await driver.shows("Three")
        await driver.press("ctrl+r")
        await until(lambda: len(script.calls) == 3)
        await driver.shows("Three")
        await driver.press("ctrl+l")
        await driver.hides("Three")
    assert [call[2]["messages"] for call in script.calls[1:]] == [[{"role": "user", "content": "ab"}]] * 2


async def test_chat_asks_the_model_that_was_chosen(tmp_path: Path) -> None:
    script = demo.script(2)
    async with looking(script, tmp_path) as driver:
        await driver.press("4", "ctrl+o", "down", "enter")
        await driver.shows("with smollm2-135m-instruct")
        await driver.press("a", "enter")
        await until(lambda: script.calls)
    assert script.calls[0][2]["model"] == demo.SMALL


async def test_chat_says_how_an_answer_ended(tmp_path: Path) -> None:
    script = demo.script(2)
    call = {"index": 0, "function": {"name": "f", "arguments": "{[b]"}}
    ends: list[tuple[list[dict[str, object] | str], str]] = [
        ([chunk(content="So"), {"error": {"message": "Cancelled by the operator."}}], "✖ Cancelled by the operator."),
        ([chunk(content="So")], "before the answer was whole"),
        ([chunk(content="So"), "{"], "cannot be read"),
        ([chunk("length", content="So"), "[DONE]"], "cut off at the length limit"),
        ([chunk(tool_calls=[call]), chunk("tool_calls")], "→ f({[b])"),
    ]
    script.answers = [answer for answer, _ in ends]
    async with looking(script, tmp_path) as driver:
        await driver.press("4")
        await driver.on("chat")
        page = driver.page
        assert isinstance(page, ChatPage)
        for _, words in ends:
            await driver.press("a", "enter")
            await driver.shows(words)
            await until(lambda: not page.busy)
        script.refuse["/v1/chat"] = lambda: problem(429, "The queue is full.")
        await driver.press("a", "enter")
        await driver.shows("✖ 429: The queue is full.")


async def test_bench_runs_keeps_its_result_and_compares(tmp_path: Path) -> None:
    script = demo.script(2)
    script.answers = [demo.answer("one two three", "")]  # type: ignore[list-item]
    async with looking(script, tmp_path) as driver:
        await driver.press("5")
        await driver.on("bench")
        driver.page.query_one("#requests", Input).value = "6"
        await driver.press("r")
        await driver.shows("6 answers in", "first token p50")
        table = driver.page.query_one("#result", DataTable)
        assert table.get_row_at(0)[2].plain == "–"
        await driver.press("r")
        await until(lambda: len(script.calls) == 12 and table.get_row_at(0)[2].plain != "–")
        await until(lambda: table.get_row_at(0)[1].plain != "–")
    prompts = {call[2]["messages"][0]["content"] for call in script.calls}
    assert len(prompts) == 12
    assert {call[2]["ignore_eos"] for call in script.calls} == {True}


async def test_bench_stops_and_says_what_failed(tmp_path: Path) -> None:
    script = demo.script(2)
    script.answers = [["hold"]]
    script.hold_answer.clear()
    async with looking(script, tmp_path) as driver:
        await driver.press("5", "r")
        await until(lambda: len(script.calls) == 4)
        await driver.press("x")
        await driver.shows("stopped.")
        script.refuse["/v1/chat"] = lambda: problem(400, "ignore_eos is not supported.")
        await driver.press("r")
        await driver.shows("✖ no request came to a good end: HTTP 400: ignore_eos is not supported.")
        driver.page.query_one("#concurrency", Input).value = "0"
        await driver.press("r")
        await driver.shows("at a time: 1 to 256")


async def test_logs_are_filtered_by_level_and_text(tmp_path: Path) -> None:
    async with looking(demo.script(2), tmp_path, (120, 30)) as driver:
        await driver.press("6")
        await driver.shows("info and above", "listening on", "signal 9")
        assert "step 10412" not in shown(driver.app)
        await driver.press("l")
        await driver.hides("listening on")
        await driver.press("l", "l")
        await driver.shows("debug and above", "step 10412")
        await driver.press("slash", *"REQ_65")
        await driver.hides("listening on")
        await driver.shows("the client stalls")
        await driver.press("escape")
        await driver.shows("listening on")


async def test_a_log_line_drives_neither_terminal_nor_markup(tmp_path: Path) -> None:
    script = demo.script(1)
    line = demo.logs()[0]
    script.logs = [
        type(line)(
            time=line.time, level="error", logger="x[b]", message="\x1b]0;owned\x07 [red]no[/red]\n  second\x9b2J"
        )
    ]
    async with looking(script, tmp_path, (120, 30)) as driver:
        await driver.press("6")
        await driver.shows("x[b] ␛]0;owned␇ [red]no[/red]", "      second\ufffd2J")
