"""A server that puts control sequences and markup into everything it tells: none reaches the terminal, on any page."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from tui import demo
from tui.driving import LARGE, Driver, looking, shown
from tui.played_server import chunk, problem

NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[bold][@click=app.quit]q"
SEEN = "␛]0;owned␇␛[2J"
FIXED = ("state", "level")
"""Members that are one of a few words, which the reader checks."""

T = TypeVar("T")


def told(view: T) -> T:
    """The same as a hostile server would tell it: `NASTY` before every text."""
    return cast(T, _poisoned(view))


def _poisoned(value: Any) -> Any:
    if isinstance(value, str):
        return NASTY + value
    if isinstance(value, list):
        return [_poisoned(each) for each in value]
    if isinstance(value, dict):
        return {_poisoned(each): _poisoned(of) for each, of in value.items()}
    if isinstance(value, msgspec.Struct):
        names = (name for name in value.__struct_fields__ if name not in FIXED)
        return msgspec.structs.replace(value, **{name: _poisoned(getattr(value, name)) for name in names})
    return value


async def test_nothing_a_server_tells_drives_the_terminal(tmp_path: Path) -> None:
    script = demo.script(1)
    script.snapshots = [told(demo.snapshot())]
    script.logs = [told(each) for each in demo.logs()]
    script.wires = {surface: [NASTY, *pieces] for surface, pieces in script.wires.items()}
    script.details = {each.id: told(demo.detail()) for each in script.snapshots[0].requests}
    script.answers = [[chunk(reasoning_content=NASTY), chunk(content=NASTY), chunk(NASTY), "[DONE]"]]
    async with looking(script, tmp_path, LARGE) as driver:
        await sound(driver, [])
        await sound(driver, ["2"])
        await sound(driver, ["enter"], "On the wire", "0 → -5 by")
        await sound(driver, ["escape", "c"], "Cancel ")
        await sound(driver, ["n", "i"], "Priority of ")
        await sound(driver, ["escape", "3", "u"], "Unload ")
        script.refuse["/v1/admin"] = script.refuse["/v1/chat"] = lambda: problem(400, NASTY)
        await sound(driver, ["y"], "Not done")
        await sound(driver, ["4", "a", "enter"], "✖ 400: ")
        script.refuse.clear()
        await sound(driver, ["ctrl+r", "ctrl+t", "ctrl+o"], "thinking")
        script.refuse["/v1/chat"] = lambda: problem(400, NASTY)
        await sound(driver, ["f5", "r"], "HTTP 400: ")
        await sound(driver, ["f6"], "the client stalls")


async def sound(driver: Driver, keys: list[str], *texts: str) -> None:
    """Press, wait until the page has drawn what is hostile, and look at every character."""
    await driver.press(*keys)
    await driver.shows(SEEN, *texts)
    screen = shown(driver.app)
    found = {each for each in screen.replace("\n", "") if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not found, (keys, found)
