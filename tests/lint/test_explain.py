"""Captures of any server, explained: every rule has words, every fault its place."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import millstream.lint
from millstream.cli.app import app
from millstream.ir.deltas import Content, Delta, Finish, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.lint.explain import SURFACES, lint_capture
from millstream.surfaces import anthropic_messages, openai_chat, openai_completions, responses
from millstream.surfaces.responses import ResponsesOptions
from millstream.surfaces.wire import Surface, WireOptions
from support.wire import write

LINT = Path(millstream.lint.__file__).parent
MODULES = {
    "chat": ("openai_stream", "sse", "capture", "transfer"),
    "completions": ("openai_stream", "sse", "capture", "transfer"),
    "responses": ("responses_stream", "sse", "capture", "transfer"),
    "messages": ("messages_stream", "sse", "capture", "transfer"),
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n"
ENCODERS: dict[str, tuple[Surface, WireOptions]] = {
    "chat": (openai_chat, WireOptions(model="m")),
    "completions": (openai_completions, WireOptions(model="m")),
    "responses": (responses, ResponsesOptions(model="m")),  # type: ignore[dict-item]
    "messages": (anthropic_messages, WireOptions(model="m")),
}


def capture(name: str) -> bytes:
    surface, options = ENCODERS[name]
    deltas: list[Delta] = [Start(2), Content("a"), Content("b")]
    if name != "completions":
        deltas += [ToolCallStart(0, "call_1", "f"), ToolCallArgs(0, "{}")]
    deltas.append(Finish("stop" if name == "completions" else "tool_calls", Usage(2, 3)))
    return write(surface.stream_encoder(options), deltas)


def rules(module: str) -> set[str]:
    """The rules that a module can report."""
    found = set()
    for node in ast.walk(ast.parse((LINT / f"{module}.py").read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        at = {"check": 1, "_check": 1, "report": 0, "_report": 0, "Finding": 0}.get(name)
        if at is not None and len(node.args) > at and isinstance(rule := node.args[at], ast.Constant):
            found.add(rule.value)
    return found


@pytest.mark.parametrize("name", SURFACES)
def test_every_rule_is_explained(name: str) -> None:
    reported = set().union(*(rules(module) for module in MODULES[name]))
    assert reported
    assert reported <= SURFACES[name].rules.keys()


@pytest.mark.parametrize("name", SURFACES)
def test_legal_captures_pass_with_and_without_headers(name: str) -> None:
    raw = capture(name)
    redirect = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /x\r\n\r\n"
    for legal in (raw, HEAD + raw, redirect + HEAD + raw, raw.replace(b"\n", b"\r\n")):
        assert lint_capture(legal, name) == []


@pytest.mark.parametrize("name", SURFACES)
def test_a_cut_capture_is_a_fault_of_the_stream(name: str) -> None:
    raw = capture(name)
    cut = raw[: raw.rindex(b"\n\n", 0, -2) + 2]
    faults = lint_capture(cut, name)
    assert faults
    assert all(fault.expected for fault in faults)


@pytest.mark.parametrize("name", SURFACES)
def test_no_bytes_make_it_stumble(name: str) -> None:
    for raw in (b"", b"\n\n", b"\xff\n\n", HEAD, b"HTTP/1.1 200", b"data: [1]\n\n", b'data: {"choices":[[1],3]}\n\n'):
        assert lint_capture(raw, name)


JSON = st.recursive(
    st.sampled_from([None, True, 0, 3, -1.5, "", "x", "[DONE]"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "index", "id"]), inner, max_size=2)
    ),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be put into a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", SURFACES)
@given(data=st.data())
def test_wrong_values_anywhere_are_faults_and_not_failures(name: str, data: st.DataObject) -> None:
    frames = capture(name).split(b"\n\n")
    at = data.draw(st.sampled_from([k for k, frame in enumerate(frames) if b"data: {" in frame]))
    head, _, body = frames[at].rpartition(b"data: ")
    value = json.loads(body)
    wrong = put(value, data.draw(st.sampled_from(list(places(value)))), data.draw(JSON))
    frames[at] = head + b"data: " + json.dumps(wrong).encode()
    lint_capture(b"\n\n".join(frames), name)


def test_a_fault_names_its_line_and_frame() -> None:
    lines = HEAD.count(b"\n")
    raw = HEAD + b": hello\n\n" + capture("chat").replace(b'"content":"b"', b'"content":7')
    (fault,) = lint_capture(raw, "chat")
    assert (fault.rule, fault.frame, fault.line) == ("delta", 3, lines + 7)
    (framing,) = lint_capture(HEAD + b"hello\n\n" + capture("chat"), "chat")
    assert (framing.rule, framing.line) == ("framing", lines + 1)


def test_headers_are_judged() -> None:
    raw = b"HTTP/2 201\ncontent-type: application/json\n\n" + capture("chat")
    assert [fault.rule for fault in lint_capture(raw, "chat")] == ["status", "content-type"]


def test_choices_are_counted_unless_told() -> None:
    raw = write(
        openai_chat.stream_encoder(WireOptions(model="m", choices=2)),
        [Content("a", 1), *(Finish("stop", Usage(), k) for k in range(2))],
    )
    assert lint_capture(raw, "chat") == []
    assert "finish" in {fault.rule for fault in lint_capture(raw, "chat", choices=3)}


def test_command(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sse", tmp_path / "bad.sse"
    good.write_bytes(capture("chat"))
    bad.write_bytes(capture("chat").replace(b"[DONE]", b"[END]"))
    run = CliRunner().invoke
    legal = run(app, ["lint", str(good), "--surface", "chat"])
    assert (legal.exit_code, legal.stdout) == (0, "chat: legal\n")
    otherwise = run(app, ["lint", str(good), "--surface", "chat_completions"])  # as the metrics call it
    assert (otherwise.exit_code, otherwise.stdout) == (0, "chat: legal\n")
    faulty = run(app, ["lint", str(bad), "--surface", "chat"])
    assert faulty.exit_code == 1
    assert "expected: `data: [DONE]` comes exactly once" in faulty.stdout
    piped = run(app, ["lint", "-", "--surface", "chat", "--json"], input=bad.read_bytes())
    assert piped.exit_code == 1
    report = json.loads(piped.stdout)
    assert (report["ok"], report["surface"]) == (False, "chat")
    assert {"rule", "message", "expected", "frame", "line"} <= report["faults"][0].keys()
    assert run(app, ["lint", str(good), "--surface", "smoke"]).exit_code == 2


def test_more_empty_lines_than_one_between_frames_are_legal() -> None:
    encoder = openai_chat.stream_encoder(WireOptions(model="m"))
    stream = write(encoder, [Start(3), Content("Hi"), Finish("stop", Usage(3, 1))])
    assert lint_capture(stream.replace(b"\n\n", b"\n\n\n"), "chat") == []
    assert lint_capture(stream.replace(b"\n\n", b"\n\n\n\n"), "chat") == []
