"""gpt-oss: an answer is a series of messages, each with a header that names its channel and its recipient:

    <|channel|>analysis<|message|>The user wants the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"zone": "CET"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It is sunny.<|return|>

The analysis channel is reasoning, a message to a recipient is a call, all other text is visible. (The openai-harmony
package reads token ids of its own vocabulary, which it downloads; here text is what comes.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.events import Span
from millstream.parsing.scan.channel import TextChannel
from millstream.parsing.scan.json_text import json_value
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Steps
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar

CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
START = "<|start|>"
END = "<|end|>"
CONSTRAIN = "<|constrain|>"

THOUGHTS = (f"{CHANNEL}analysis{MESSAGE}", END)
"""What opens and closes a message of analysis."""

_ENDS = Markers([END, "<|call|>", "<|return|>", START, CHANNEL])
_OPENS = Markers([START, CHANNEL])
_HEADER = Markers([MESSAGE, CHANNEL, CONSTRAIN, START, END])
_MESSAGE = Markers([MESSAGE])
_BEGINNING = Markers([START, CHANNEL, MESSAGE])
_RECIPIENT = Markers(["to="])
_HEADER_WORDS = 6


def header_fields(header: str) -> tuple[str, str | None]:
    """Channel and recipient of ``assistant to=functions.f<|channel|>commentary json`` and its variants."""
    before, _, after = header.partition(CHANNEL)
    words = after.split()
    channel = words[0] if words and not words[0].startswith("to=") else ""
    recipients = [word[3:] for word in (*before.split(), *words) if word.startswith("to=")]
    return channel, recipients[0] if recipients and recipients[0] else None


class Harmony:
    """The parser of both stages.

    Args:
        calls: whether messages to a recipient are calls; without tools in the request they are text.
    """

    def __init__(self, *, calls: bool) -> None:
        self._calls = calls

    def steps(self, scanner: Scanner) -> Steps[None]:
        """The whole output."""
        thoughts = TextChannel(lambda text: scanner.emit(Span(text, "reasoning")), after_markup=True)
        marker = yield from self._beginning(scanner)
        try:
            while True:
                if marker in _OPENS:
                    fields = yield from self._header(scanner, marker)
                    scanner.content.markup()
                    thoughts.markup()
                    marker = yield from self._body(scanner, thoughts, *fields)
                else:
                    marker = yield from scanner.until(_ENDS, scanner.content.write)
        except EndOfInput:
            thoughts.flush()
            raise

    def _beginning(self, scanner: Scanner) -> Steps[str]:
        """The prompt ends behind ``<|start|>assistant``, so the answer begins within a header, or else with text."""
        yield from scanner.first(_BEGINNING)
        if (yield from scanner.ahead(_RECIPIENT)) is not None:
            return START
        marker = yield from scanner.accept(_BEGINNING)
        return marker if marker is not None and marker in _OPENS else ""

    def _header(self, scanner: Scanner, marker: str) -> Steps[tuple[str, str | None]]:
        """Reads up to the message."""
        parts = [CHANNEL if marker == CHANNEL else ""]
        try:
            while marker != MESSAGE:
                marker = yield from scanner.until(_HEADER, parts.append)
                if marker in {START, END}:
                    parts.clear()
                parts.append(CHANNEL if marker == CHANNEL else " ")
        except EndOfInput:
            # The beginning of a header is markup, but text for which the model forgot the header's end is not lost.
            text = "".join(parts[1:])
            scanner.content.write(text if len(text.split()) > _HEADER_WORDS else "")
            raise
        return header_fields("".join(parts))

    def _body(self, scanner: Scanner, thoughts: TextChannel, channel: str, recipient: str | None) -> Steps[str]:
        """A message's text; returns the marker behind it."""
        if recipient is not None and self._calls:
            scanner.in_call = True
            marker = yield from self._call(scanner, recipient.removeprefix("functions."))
            scanner.in_call = False
            return marker
        sink = thoughts.write if channel == "analysis" and recipient is None else scanner.content.write
        return (yield from scanner.until(_ENDS, sink))

    def _call(self, scanner: Scanner, name: str) -> Steps[str]:
        """Arguments are the JSON object that the message begins with; any other message is passed on whole, as
        freeform tools expect it."""
        scanner.start_call(name)
        yield from scanner.space()
        if (yield from scanner.peek()) == "{":
            yield from json_value(scanner, scanner.args, _ENDS)
            scanner.end_call()
            return (yield from scanner.until(_ENDS, scanner.content.write))
        if (yield from scanner.ahead(_ENDS)) is not None:
            scanner.args("{}")
        marker = yield from scanner.until(_ENDS, scanner.args, awaited=True)
        scanner.end_call()
        return marker


_MESSAGE_TEXT = f"TEXT: {grammar.ANY_TEXT} & ~" + grammar.pattern(
    r"(?s:.*)<\|(end|call|return|start|channel)\|>(?s:.*)"
)
_NEEDED = frozenset({CHANNEL, MESSAGE, START, END})


def held(control_tokens: Mapping[str, int]) -> bool:
    """Whether there are grammars for a vocabulary: headers are control tokens, as in gpt-oss's own."""
    return control_tokens.keys() >= _NEEDED


def frame(control_tokens: Mapping[str, int], *, once: bool = False) -> tuple[str, str]:
    """Rules around what an answer is held to, and what stands before it if it is visible text.

    The rules define ``thoughts``: the messages of analysis in front of it. ``once``: there is one at most.
    """
    channel, message, end, start = _marks(control_tokens)
    constrain = grammar.marker(CONSTRAIN, control_tokens)
    rules = [
        f'thoughts: ({channel} "analysis" {message} TEXT {end} {start} "assistant"){"?" if once else "*"}',
        f'json_mark: (/ ?/ {constrain} "json" | " json")?',
        _MESSAGE_TEXT,
    ]
    return "\n".join(rules), f'{channel} "final" json_mark {message}'


def constrain(
    tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]
) -> str | None:
    """Its grammar, for what stands behind the thoughts (`frame`). There is one call: the model hands over after it."""
    if not held(control_tokens):
        return None
    channel, message, end, start = _marks(control_tokens)

    def call(tool: Tool) -> str:
        recipient = f"to=functions.{tool.name}"
        first = f'{grammar.quoted(" " + recipient)} {channel} "commentary"'
        last = f"{channel} {grammar.quoted('commentary ' + recipient)}"
        return f"({first} | {last}) json_mark {message} ws {grammar.arguments(tool)}"

    lark = [grammar.rules("call", tools, call), frame(control_tokens)[0]]
    if required:
        lark.append("start: call")
    else:
        lark.append(f'start: (note {end} {start} "assistant")* (note | call)')
        lark.append(f"note: {channel} /commentary|final/ {message} TEXT")
    return grammar.whole("\n".join(lark))


def messages(control_tokens: Mapping[str, int]) -> str:
    """A grammar of any messages behind the thoughts."""
    channel, message, end, start = _marks(control_tokens)
    constrain = grammar.marker(CONSTRAIN, control_tokens)
    header = f"/( to=[^<]{{1,80}})?/ {channel} /(commentary|final)[^<]{{0,80}}/ ({constrain} /[a-z]{{0,16}}/)?"
    lark = [f'start: (note {end} {start} "assistant")* note', f"note: {header} {message} TEXT", _MESSAGE_TEXT]
    return grammar.whole("\n".join(lark))


def _marks(control_tokens: Mapping[str, int]) -> tuple[str, str, str, str]:
    channel, message, end, start = (grammar.marker(text, control_tokens) for text in (CHANNEL, MESSAGE, END, START))
    return channel, message, end, start


FORMAT = ToolFormat(
    name="harmony",
    steps=lambda tools: Harmony(calls=bool(tools)).steps,
    detect=lambda source, tokens: CHANNEL in source and MESSAGE in source,
    constrain=constrain,
    reasoning="harmony",
)
