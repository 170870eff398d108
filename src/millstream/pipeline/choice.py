"""From the token steps of one choice to its deltas.

Stages, in order, for streamed steps and for the final flush alike:

    ids ─► text (partial UTF-8 held back) ─► control tokens ─► parser (reasoning, tool calls) ─► stop strings ─► Content

Tokens are taken one at a time whatever the steps are, so the result does not depend on how they were cut; the deltas of
a step are the only thing that does. A choice ends with the first of

- a token of ``stop_ids`` (end of turn, or the request's stop token): it has no text,
- the token that completes a stop string in the visible text,
- the finish that the engine reports.

That token is the answer's last: it is in ``token_ids`` and counted in the usage, what the engine sent after it is not.
As in vLLM, neither stop ids nor stop strings count for the first ``min_tokens`` tokens: a stop string that one of those
completes is ordinary text, one that begins in them and is completed by a later token is a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from millstream.engine.protocol import TokenAlternatives, TokenDelta
from millstream.ir.deltas import (
    Content,
    Delta,
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
from millstream.ir.errors import engine_failed
from millstream.ir.guard import error_of
from millstream.ir.request import Output
from millstream.parsing.detokenizer import Detokenizer
from millstream.parsing.stops import StopMatcher, StopStrings
from millstream.parsing.tokens import TokenTable

Part = Content | Reasoning | ToolCallStart | ToolCallArgs
"""What a parser makes of text. Choice, token ids and logprobs are filled in by the decoder."""


class Parser(Protocol):
    """Splits a choice's text into channels. It may hold back what can still become a marker, and nothing else."""

    def text(self, text: str) -> Sequence[Part]: ...

    def special(self, token_id: int) -> Sequence[Part]:
        """A control token stands here in the text."""
        ...

    def flush(self) -> Sequence[Part]:
        """The text has ended."""
        ...


class ChoiceDecoder:
    """Deltas of one choice. Ids and logprobs are carried by the first delta that shows text of, or after, their token;
    `Finish` carries the rest."""

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
    ) -> None:
        output = output or Output()
        self._table = table
        self._detokenizer = Detokenizer(table)
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
        self._has_calls = False
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
        logprobs = step.logprobs
        if self._alternatives is not None and len(logprobs) != len(step.tokens):
            raise ValueError(f"the engine gave {len(logprobs)} log probabilities for {len(step.tokens)} tokens")
        for index, token in enumerate(step.tokens):
            if self._want_ids:
                self._ids.append(token)
            if self._alternatives is not None:
                self._logprobs.append(self._logprob(token, logprobs[index]))
            if self._take(token):
                return out
        if step.finish is None:
            self._show()
        elif step.finish == "error":
            self._show()
            self._fail(step.error)
        else:
            self._finish(step.finish)
        return out

    def _take(self, token: int) -> bool:
        """One token through all stages; True if it ended the choice."""
        self._count += 1
        armed = self._count > self._min_tokens
        if armed and token in self._stop_ids:
            self._finish("stop")
            return True
        text, special = self._detokenizer.push(token)
        if text:
            self._text(text, armed)
        if special and self._parser is not None and self._matcher.matched is None:
            self._parts(self._parser.special(token), armed)
        if self._matcher.matched is None:
            return False
        self._finish("stop")
        return True

    def _text(self, text: str, armed: bool) -> None:
        if self._parser is None:
            self._visible(text, armed)
        else:
            self._parts(self._parser.text(text), armed)

    def _parts(self, parts: Sequence[Part], armed: bool) -> None:
        for part in parts:
            if isinstance(part, Content):
                self._visible(part.text, armed)
                if self._matcher.matched is not None:
                    return
                continue
            # Another channel interrupts the visible text: no stop string reaches across it.
            self._shown.append(self._matcher.flush())
            self._show()
            self._has_calls |= isinstance(part, ToolCallStart)
            ids = self._take_ids()
            if isinstance(part, Reasoning):
                self._out.append(replace(part, choice=self._choice, token_ids=ids, logprobs=self._take_logprobs()))
            else:
                self._out.append(replace(part, choice=self._choice, token_ids=ids))

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
        if self._matcher.matched is None:
            tail = self._detokenizer.flush()
            if tail:
                self._text(tail, armed)
        if self._matcher.matched is None and self._parser is not None:
            self._parts(self._parser.flush(), armed)
        if self._matcher.matched is None:
            self._shown.append(self._matcher.flush())
        else:
            reason = "stop"
        self._show()
        if reason == "stop" and self._has_calls:
            reason = "tool_calls"
        self.finished = True
        self._out.append(
            Finish(
                reason,
                Usage(self._prompt_tokens, self._count, self._cached_tokens),
                self._choice,
                self._take_ids(),
                self._take_logprobs(),
                self._matcher.matched,
            )
        )

    def _fail(self, message: str | None) -> None:
        self.finished = True
        self._out.append(error_of(engine_failed(message or "The engine failed.")))

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

    def _logprob(self, token: int, entry: TokenAlternatives) -> TokenLogprob:
        name = self._table.name
        top = tuple(
            TopLogprob(other, *name(other), logprob)
            for other, logprob in zip(entry.top_ids[: self._alternatives], entry.top_logprobs, strict=False)
        )
        return TokenLogprob(token, *name(token), entry.logprob, top, self._table[token] is not None)
