"""Stages around a choice of a completion: which prompt it belongs to, and the prompt's own text before it."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from millstream.engine.protocol import TokenAlternatives, TokenDelta
from millstream.ir.deltas import Content, Delta, Finish, Start, TokenLogprob, Usage
from millstream.ir.guard import error_of
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.choice import ChoiceDecoder, token_logprob
from millstream.pipeline.timeouts import timed_out

_NOTHING_BEFORE = TokenAlternatives(math.nan)
"""Of the first token of a prompt, which nothing precedes."""


class Echo(Protocol):
    """The text of one prompt, for one choice. ``missing``: log probabilities of the prompt that are still to come."""

    @property
    def missing(self) -> int: ...

    def take(self, scores: Sequence[TokenAlternatives]) -> list[Content]:
        """What a step adds to it that told these log probabilities of the prompt."""
        ...


class WholeEcho:
    """All of the text at once."""

    missing = 0

    def __init__(self, text: str, choice: int) -> None:
        self._text = text
        self._choice = choice

    def take(self, scores: Sequence[TokenAlternatives]) -> list[Content]:
        text, self._text = self._text, ""
        return [Content(text, self._choice)] if text else []


class ScoredPrompt:
    """A prompt that is echoed token by token: ``shown`` holds each token's bytes as they stand in the text, None for a
    token that does not. ``held``: bytes of a character that the last token leaves incomplete."""

    def __init__(self, ids: Sequence[int], shown: Sequence[bytes | None]) -> None:
        self.ids = ids
        self.shown = shown
        self.pieces, self.held = _pieces(shown)

    def token(self, index: int, entry: TokenAlternatives, table: TokenTable, alternatives: int) -> TokenLogprob:
        """Token ``index`` with its log probability."""
        token = token_logprob(table, self.ids[index], entry, alternatives)
        shown = self.shown[index]
        if shown is None or shown == token.bytes:
            return replace(token, shown=shown is not None)
        return replace(token, text=shown.decode("utf-8", "replace"), bytes=shown, shown=True)


class ScoredEcho:
    """The text of a prompt as far as its tokens have log probabilities."""

    def __init__(self, prompt: ScoredPrompt, table: TokenTable, *, alternatives: int, choice: int) -> None:
        self._prompt = prompt
        self._table = table
        self._alternatives = alternatives
        self._choice = choice
        self._taken = 0

    @property
    def missing(self) -> int:
        return len(self._prompt.ids) - max(self._taken, 1)

    def take(self, scores: Sequence[TokenAlternatives]) -> list[Content]:
        first = self._taken
        if first == 0:
            scores = [_NOTHING_BEFORE, *scores]
        if not scores:
            return []
        self._taken = end = first + len(scores)
        logprobs = tuple(
            self._prompt.token(index, entry, self._table, self._alternatives)
            for index, entry in enumerate(scores, first)
        )
        return [Content("".join(self._prompt.pieces[first:end]), self._choice, logprobs=logprobs)]


class PromptStage:
    """Tells the number of the choice's prompt, and echoes it if there is an ``echo``.

    Time that is up before the prompt has all its log probabilities is a failure: an echo that asks for no answer ends
    with ``length`` when it is complete, so nobody could tell one that was cut.
    """

    def __init__(self, decoder: ChoiceDecoder, *, prompt: int, echo: Echo | None) -> None:
        self._decoder = decoder
        self._prompt = prompt
        self._echo = echo

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    def feed(self, step: TokenDelta) -> list[Delta]:
        out: list[Delta] = []
        deltas = self._decoder.feed(step)
        if deltas and isinstance(deltas[0], Start):
            out.append(replace(deltas.pop(0), prompt=self._prompt))
        if self._echo is not None and step.finish != "error":
            if step.finish == "timeout" and len(step.prompt_logprobs) < self._echo.missing:
                return [*out, error_of(timed_out("the last log probability of the prompt"))]
            out += self._echo.take(step.prompt_logprobs)
        return out + deltas


def echoed(text: str, *, prompt: int, choice: int, tokens: int) -> list[Delta]:
    """A choice that is its prompt and nothing else."""
    return [
        Start(tokens, prompt=prompt),
        Content(text, choice),
        Finish("length", Usage(prompt_tokens=tokens), choice),
    ]


def shown_tokens(raw: Sequence[bytes], text: str, *, bos: bool) -> list[bytes | None]:
    """How the tokens of a text stand in it, given the bytes of each. ``bos``: the first may be a token that was put
    before the text.

    A space that the tokenizer puts before a text is left out. Where it changes more (another normal form, characters
    that it has no token for), the tokens say something else than the text, and so does the echo.
    """
    wanted = text.encode("utf-8", "replace")
    begins = int(bos and not wanted.startswith(raw[0]))
    shown: list[bytes | None] = [None] * begins + list(raw[begins:])
    if begins < len(raw) and raw[begins][:1] == b" " and b"".join(raw[begins:])[1:] == wanted:
        shown[begins] = raw[begins][1:]
    return shown


def _pieces(shown: Sequence[bytes | None]) -> tuple[list[str], bytes]:
    """The text that becomes certain with each token, and the bytes that are held back at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in shown:
        if token is None:
            pieces.append(decoder.decode(b"", True))
            decoder.reset()
        else:
            pieces.append(decoder.decode(token))
    return pieces, decoder.getstate()[0]
