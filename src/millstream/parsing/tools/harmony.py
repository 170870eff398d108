"""gpt-oss: an answer is a series of messages, each with a header that names its channel and its recipient:

    <|channel|>analysis<|message|>The user wants the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"zone": "CET"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It is sunny.<|return|>

The analysis channel is reasoning, a message to a recipient is a call, all other text is visible. (The openai-harmony
package reads token ids of its own vocabulary, which it downloads; here text is what comes.)
"""

from __future__ import annotations

from millstream.parsing.events import Span
from millstream.parsing.scan.channel import TextChannel
from millstream.parsing.scan.json_text import json_value
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Steps
from millstream.parsing.tools.format import ToolFormat

CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
START = "<|start|>"

_ENDS = Markers(["<|end|>", "<|call|>", "<|return|>", START, CHANNEL])
_OPENS = Markers([START, CHANNEL])
_HEADER = Markers([MESSAGE, CHANNEL, "<|constrain|>", START, "<|end|>"])
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
                if marker in {START, "<|end|>"}:
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


FORMAT = ToolFormat(
    name="harmony",
    steps=lambda tools: Harmony(calls=bool(tools)).steps,
    detect=lambda source, tokens: CHANNEL in source and MESSAGE in source,
    reasoning="harmony",
)
