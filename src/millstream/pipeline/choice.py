"""From the token steps of one choice to its deltas.

Stages, in order, for streamed steps and for the final flush alike:

    ids ─► text (partial UTF-8 held back) ─► control tokens ─► parser (reasoning, tool calls) ─► stop strings ─► Content

Tokens are taken one at a time whatever the steps are, so the result does not depend on how they were cut; the deltas of
a step are the only thing that does. A choice ends with the first of

- a token of ``stop_ids`` (end of turn, or the request's stop token): it has no text,
- the token that completes a stop string in the visible text,
- the finish that the engine reports.

That token is the answer's last: it is in ``token_ids`` and counted in the usage, what the engine sent after it is not.
With ``parallel_calls`` false the token that completes the first tool call is such an end too.
As in vLLM, neither stop ids nor stop strings count for the first ``min_tokens`` tokens: a stop string that one of those
completes is ordinary text, one that begins in them and is completed by a later token is a match.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.engine.protocol import TokenAlternatives, TokenDelta
from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    FinishReason,
    Reasoning,
    Start,
    TokenLogprob,
    ToolCallArgs,
    ToolCallStart,
    TopLogprob,
    Usage,
)
from millstream.ir.errors import engine_failed, invalid
from millstream.ir.guard import error_of
from millstream.ir.request import Output
from millstream.parsing.detokenizer import Detokenizer
from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Parser, Piece, Span
from millstream.parsing.stops import StopMatcher, StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.calls import new_call_id

log = logging.getLogger(__name__)


class _ParserFailure(Exception):
    """A parser raised an exception: a fault of ours, whatever the model wrote."""


class ChoiceDecoder:
    """Deltas of one choice. Ids and logprobs are carried by the first delta that shows text of, or after, their token;
    `Finish` carries the rest.

    Args:
        parser: splits the text into channels; None: all text is visible.
        parallel_calls: whether a second tool call may follow the first.
        call_id: mints the id of a call for which the model wrote none.
        held: the beginning of a character that the text before the answer leaves incomplete.
    """

    def __init__(
        self,
        table: TokenTable,
        *,
        prompt_tokens: int,
        choice: int = 0,
        stop: StopStrings | None = None,
        stop_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        output: Output | None = None,
        parser: Parser | None = None,
        parallel_calls: bool = True,
        call_id: Callable[[], str] = new_call_id,
        held: bytes = b"",
    ) -> None:
        output = output or Output()
        self._table = table
        self._detokenizer = Detokenizer(table, held)
        self._parser = parser
        self._matcher = StopMatcher(stop or StopStrings(()))
        self._stop_ids = stop_ids
        self._min_tokens = min_tokens
        self._choice = choice
        self._want_ids = output.token_ids
        self._alternatives = output.logprobs
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = 0
        self._count = 0
        self._started = False
        self._parallel_calls = parallel_calls
        self._new_call_id = call_id
        self._call_ids: set[str] = set()
        self._calls = 0
        self._one_call_done = False
        self._unsettled = 0
        self._reasoning_tokens = 0
        self._drafted = self._accepted = 0
        self._shown: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._out: list[Delta] = []
        self.finished = False

    def feed(self, step: TokenDelta) -> list[Delta]:
        """Deltas of one step; the first step's begin with `Start`. After ``finished`` there are none."""
        if self.finished:
            return []
        out = self._out = []
        if step.cached_tokens > self._cached_tokens:
            self._cached_tokens = step.cached_tokens
        if not self._started:
            self._started = True
            out.append(Start(self._prompt_tokens, self._cached_tokens))
        if self._alternatives is not None and len(step.logprobs) != len(step.tokens):
            raise ValueError(f"the engine gave {len(step.logprobs)} log probabilities for {len(step.tokens)} tokens")
        try:
            self._step(step)
        except _ParserFailure:
            self._show()
            self.finished = True
            out.append(Error("Internal error while reading the model's output.", code="parser_error"))
        return out

    def _step(self, step: TokenDelta) -> None:
        self._drafted += step.drafted
        self._accepted += step.accepted
        for index, token in enumerate(step.tokens):
            if self._want_ids:
                self._ids.append(token)
            if self._alternatives is not None:
                entry = token_logprob(self._table, token, step.logprobs[index], self._alternatives)
                self._logprobs.append(entry)
            if self._take(token):
                return
        if step.finish is None:
            self._show()
        elif step.finish == "error":
            self._show()
            self._fail(step)
        else:
            self._finish("length" if step.finish == "timeout" else step.finish)

    def _take(self, token: int) -> bool:
        """One token through all stages; True if it ended the choice."""
        self._count += 1
        self._unsettled += 1
        armed = self._count > self._min_tokens
        if armed and token in self._stop_ids:
            self._finish("stop")
            return True
        text, special = self._detokenizer.push(token)
        if text:
            self._text(text, armed)
        if special and self._parser is not None and not self._ended:
            name = self._table.name(token)[0]
            if name:
                self._events(self._parse(self._parser, Piece(name, special=True)), armed)
        if not self._ended:
            return False
        self._finish("stop")
        return True

    @property
    def _ended(self) -> bool:
        """Whether the text so far ends the choice."""
        return self._one_call_done or self._matcher.matched is not None

    def _text(self, text: str, armed: bool) -> None:
        if self._parser is None:
            self._visible(text, armed)
        else:
            self._events(self._parse(self._parser, Piece(text)), armed)

    @staticmethod
    def _parse(parser: Parser, piece: Piece | None) -> list[Event]:
        """Events of a piece, or (None) of the end."""
        try:
            return parser.finish() if piece is None else parser.feed(piece)
        except Exception as error:
            log.exception("the parser %s failed", type(parser).__name__)
            raise _ParserFailure from error

    def _events(self, events: list[Event], armed: bool) -> None:
        if not events:
            return
        first = events[0]
        if isinstance(first, Span) and first.channel == "reasoning":
            self._reasoning_tokens += self._unsettled
        self._unsettled = 0
        for event in events:
            if isinstance(event, Span) and event.channel == "content":
                self._visible(event.text, armed)
            elif isinstance(event, CallEnd):
                self._one_call_done = not self._parallel_calls
            else:
                self._other_channel(event)
            if self._ended:
                return

    def _other_channel(self, event: Span | CallStart | CallArgs) -> None:
        """Anything but visible text interrupts it: no stop string reaches across."""
        self._shown.append(self._matcher.flush())
        self._show()
        ids = self._take_ids()
        if isinstance(event, Span):
            self._out.append(Reasoning(event.text, self._choice, ids, self._take_logprobs()))
        elif isinstance(event, CallStart):
            self._out.append(ToolCallStart(self._calls, self._call_id(event.id), event.name, self._choice, ids))
            self._calls += 1
        else:
            self._out.append(ToolCallArgs(self._calls - 1, event.fragment, self._choice, ids))

    def _call_id(self, own: str | None) -> str:
        """The model's own id for a call, as its template may want it back; a new one if it has none or repeats it."""
        chosen = own if own and own not in self._call_ids else self._new_call_id()
        self._call_ids.add(chosen)
        return chosen

    def _visible(self, text: str, armed: bool) -> None:
        shown = self._matcher.feed(text, armed=armed)
        if shown:
            self._shown.append(shown)

    def _show(self) -> None:
        """Send the visible text of this step."""
        if not self._shown:
            return
        text = "".join(self._shown)
        self._shown.clear()
        if text:
            self._out.append(Content(text, self._choice, self._take_ids(), self._take_logprobs()))

    def _finish(self, reason: FinishReason) -> None:
        """Flush every stage in order, then close the choice."""
        armed = self._count > self._min_tokens
        if not self._ended and (tail := self._detokenizer.flush()):
            self._text(tail, armed)
        if not self._ended and self._parser is not None:
            self._events(self._parse(self._parser, None), armed)
        if self._matcher.matched is None:
            self._shown.append(self._matcher.flush())
        self._show()
        if self._ended:
            reason = "stop"
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        self.finished = True
        usage = Usage(
            self._prompt_tokens,
            self._count,
            self._cached_tokens,
            self._reasoning_tokens,
            self._drafted,
            min(self._accepted, self._count),  # a stop string may have cut the last step
        )
        ids, logprobs = self._take_ids(), self._take_logprobs()
        self._out.append(Finish(reason, usage, self._choice, ids, logprobs, self._matcher.matched))

    def _fail(self, step: TokenDelta) -> None:
        self.finished = True
        message = step.error or "The engine failed."
        self._out.append(error_of(invalid(message) if step.refused else engine_failed(message)))

    def _take_ids(self) -> tuple[int, ...]:
        if not self._ids:
            return ()
        ids = tuple(self._ids)
        self._ids.clear()
        return ids

    def _take_logprobs(self) -> tuple[TokenLogprob, ...]:
        if not self._logprobs:
            return ()
        logprobs = tuple(self._logprobs)
        self._logprobs.clear()
        return logprobs


def token_logprob(table: TokenTable, token: int, entry: TokenAlternatives, alternatives: int) -> TokenLogprob:
    """What an engine says of one token, with at most so many alternatives, in words."""
    name = table.name
    top = tuple(
        TopLogprob(other, *name(other), logprob)
        for other, logprob in zip(entry.top_ids[:alternatives], entry.top_logprobs, strict=False)
    )
    return TokenLogprob(token, *name(token), entry.logprob, top, table[token] is not None)
