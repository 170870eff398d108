"""Laws that hold for any text, not only for well-formed outputs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Piece, Span
from millstream.parsing.registry import TOOL_FORMATS, create_parser
from parsing.driver import TOOLS, Call, fold, run

FRAGMENTS = [
    *("<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "get_time", ">", "<"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<tool_calls>"),
    *("<|python_tag|>", "<|tool_call|>", "<|/tool_call|>", "functools[", "```", "```json", "```tool_code", "call:"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "function",
    ),
    *(
        "<minimax:tool_call>",
        '<invoke name="',
        '<parameter name="',
        '">',
        "</invoke>",
        "<start_function_call>",
        "<escape>",
    ),
    *(
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
    ),
    *(
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<think>",
        "</think>",
        "[THINK]",
        "[/THINK]",
    ),
    *(
        '{"name": "get_time", "arguments": {}}',
        '{"name": "get_time"',
        '"arguments": ',
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ":",
    ),
    *(
        '"',
        "'",
        "\\",
        "\\u00e9",
        "\\ud83d",
        "\n",
        " ",
        "\n\n",
        "a",
        "1",
        "-",
        "é",
        "😀",
        "=",
        "'''",
        "None",
        "<|tool_call>",
    ),
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join)
cut_texts = texts.flatmap(
    lambda text: st.tuples(st.just(text), st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
)
formats = st.sampled_from(sorted(TOOL_FORMATS))
reasonings = st.sampled_from(["none", "think", "mistral", "harmony"])


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=2 * settings.default.max_examples)
@given(formats, reasonings, st.booleans(), cut_texts)
def test_partition_invariance(format: str, reasoning: str, opened: bool, cut: tuple[str, list[int]]) -> None:
    text, cuts = cut

    def result(pieces: list[str]) -> list[Event]:
        return run(create_parser(format, reasoning, TOOLS, reasoning_opened=opened), pieces)

    whole = result([text])
    assert result(pieces_of(text, cuts)) == whole
    assert result(list(text)) == whole
    fold(whole)


@settings(max_examples=3 * settings.default.max_examples // 2)
@given(formats.filter(lambda name: name != "harmony"), texts)
def test_text_without_calls_is_untouched(format: str, text: str) -> None:
    events = run(create_parser(format, "none", TOOLS), [text])
    if not any(isinstance(event, CallStart) for event in events):
        assert "".join(event.text for event in events if isinstance(event, Span)) == text


@settings(max_examples=3 * settings.default.max_examples // 2)
@given(formats.filter(lambda name: name != "harmony"), texts)
def test_visible_text_is_in_the_output_in_order(format: str, text: str) -> None:
    events = run(create_parser(format, "none", TOOLS), [text])
    at = 0
    for char in "".join(event.text for event in events if isinstance(event, Span)):
        at = text.index(char, at) + 1


@settings(max_examples=settings.default.max_examples)
@given(formats, reasonings, st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.booleans()), max_size=16))
def test_control_tokens_are_never_shown(format: str, reasoning: str, parts: list[tuple[str, bool]]) -> None:
    secret = {text for text, special in parts if special and text.startswith(("<|", "<｜", "[T"))}
    pieces = [Piece(text, special=text in secret) for text, _ in parts]
    parser = create_parser(format, reasoning, TOOLS)
    plain = "".join(piece.text for piece in pieces if not piece.special)
    events = run(parser, pieces)
    for event in events:
        if isinstance(event, Span):
            assert not any(name in event.text for name in secret if name not in plain)


@settings(max_examples=50, deadline=None)
@given(formats, texts)
def test_no_tools_no_calls(format: str, text: str) -> None:
    events = run(create_parser(format, "none"), [text])
    assert not any(isinstance(event, CallStart | CallArgs | CallEnd) for event in events)
    if format != "harmony":
        assert events == ([Span(text)] if text else [])


@pytest.mark.parametrize("format", sorted(TOOL_FORMATS))
def test_cost_is_linear(format: str) -> None:
    """Characters looked at, for hostile texts fed one by one: within a constant factor of the text's length."""
    for unit in FRAGMENTS:
        costs = []
        for count in (10, 40):
            text = unit * count
            parser = create_parser(format, "none", TOOLS)
            for char in text:
                parser.feed(Piece(char))
            parser.finish()
            costs.append(parser.scanner.work / len(text))  # type: ignore[attr-defined]
        assert costs[1] < 40
        assert costs[1] < costs[0] * 1.5 + 1, (unit, costs)


@pytest.mark.parametrize("format", ["hermes", "glm", "qwen3-coder", "pythonic", "gemma4", "harmony"])
def test_huge_and_deep(format: str) -> None:
    """Neither length nor nesting is a limit, and nothing recurses."""
    deep = "[" * 20_000
    frames = {
        "hermes": ('<tool_call>{"name": "f", "arguments": {"a": ', '"%s"}}</tool_call>'),
        "glm": ("<tool_call>write_file\n<arg_key>options</arg_key><arg_value>", "%s</arg_value></tool_call>"),
        "qwen3-coder": ("<function=write_file><parameter=options>", "%s</parameter></function>"),
        "pythonic": ("[write_file(options=", "'%s')]"),
        "gemma4": ("<|tool_call>call:f{a:", '<|"|>%s<|"|>}<tool_call|>'),
        "harmony": (" to=functions.f<|channel|>commentary<|message|>{", '"a":"%s"}'),
    }
    head, tail = frames[format]
    for text in (head + deep, head + tail % ("x" * 300_000), head + deep + tail):
        events = run(create_parser(format, "none", TOOLS), [text[i : i + 1000] for i in range(0, len(text), 1000)])
        calls = [item for item in fold(events) if isinstance(item, Call)]
        assert len(calls) == 1
    assert len(calls[0].arguments) >= 10_000
