"""Reasoning: tags, white space, composition with tools."""

from __future__ import annotations

import pytest

from millstream.parsing.events import Piece
from millstream.parsing.reasoning.format import FORMATS
from millstream.parsing.registry import create_parser, detect_reasoning_format
from parsing.driver import TOOLS, Call, Item, Thought, assert_same_however_cut, fold, run

TAGGED = [format for format in FORMATS.values() if format.open]


def parse(text: str, name: str = "think", *, opened: bool = False) -> list[Item]:
    return fold(assert_same_however_cut(lambda: create_parser("hermes", name, reasoning_opened=opened), text))


@pytest.mark.parametrize("format", TAGGED, ids=lambda format: format.name)
def test_every_format(format) -> None:
    text = f"\n{format.open}\n a {format.close[:-1]} b\n{format.close}\n\nAnswer {format.close} {format.open[:-1]}\n"
    assert parse(text, format.name) == [
        Thought(f"a {format.close[:-1]} b"),
        f"Answer {format.close} {format.open[:-1]}\n",
    ]


def test_none_shows_all() -> None:
    assert parse("<think>a</think>b", "none") == ["<think>a</think>b"]


def test_opened_by_the_prompt() -> None:
    assert parse("\nHm.\n</think>\n\nYes.", opened=True) == [Thought("Hm."), "Yes."]
    assert parse("never closed \n", opened=True) == [Thought("never closed \n")]
    assert parse("", opened=True) == []


def test_model_opens_what_the_prompt_opened() -> None:
    assert parse("<think>\nHm <think> x</think>y", opened=True) == [Thought("Hm <think> x"), "y"]


def test_empty_thoughts_are_none() -> None:
    assert parse("<think>\n\n</think>\n\nHi") == ["Hi"]


def test_thoughts_again() -> None:
    assert parse("<think>a</think>b<think>c</think>d") == [Thought("a"), "b", Thought("c"), "d"]


def test_white_space_in_text_stays() -> None:
    assert parse("  a\n\n  b  \n") == ["  a\n\n  b  \n"]


@pytest.mark.parametrize(
    "cut", ["<", "<think", "<think>", "<think>a", "<think>a</think", "<think>a</think>\n", "x\n<thi"]
)
def test_cut_off(cut: str) -> None:
    shown = parse(cut)
    assert (
        shown
        == {
            "<": ["<"],
            "<think": ["<think"],
            "<think>": [],
            "<think>a": [Thought("a")],
            "<think>a</think": [Thought("a</think")],
            "<think>a</think>\n": [Thought("a")],
            "x\n<thi": ["x\n<thi"],
        }[cut]
    )


def test_tags_as_control_tokens() -> None:
    pieces = [Piece("[THINK]", special=True), Piece("a [b] "), Piece("[/THINK]", special=True), Piece(" c")]
    assert fold(run(create_parser("mistral", "mistral"), pieces)) == [Thought("a [b]"), "c"]


def test_tool_markers_pass_as_control_tokens() -> None:
    pieces = [
        Piece("<think>a</think>"),
        Piece("Hi "),
        Piece("<|tool_call|>", special=True),
        Piece('[{"name": "get_time"}]'),
        Piece("<|/tool_call|>", special=True),
        Piece("<|im_end|>", special=True),
    ]
    items = fold(run(create_parser("phi4", "think", TOOLS), pieces))
    assert [item.rstrip() if isinstance(item, str) else item for item in items] == [
        Thought("a"),
        "Hi",
        Call("get_time", "{}"),
    ]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ message.content.split('</think>')[-1] }}", "think"),
        ("[THINK]{{ x }}[/THINK]", "mistral"),
        ("<|start|>{{ role }}<|channel|>final<|message|>", "harmony"),
        ("{{ message.content }}", "none"),
    ],
)
def test_detection(source: str, name: str) -> None:
    assert detect_reasoning_format(source) == name


def test_linear_cost() -> None:
    for unit in ("<", "<think", "</think", " ", "<think></think>", "\n<"):
        costs = []
        for count in (100, 400):
            parser = create_parser("hermes", "think", TOOLS)
            for char in unit * count:
                parser.feed(Piece(char))
            parser.finish()
            costs.append(parser.scanner.work / (len(unit) * count))  # type: ignore[attr-defined]
        assert costs[1] < costs[0] * 1.5 + 1
