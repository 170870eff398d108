"""Law 3: the answer that is not streamed is the fold of the stream, for every surface."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Start,
    TokenLogprob,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.request import ToolCall


class Text(msgspec.Struct, frozen=True, tag=True):
    """A run of visible text."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag=True):
    """A run of reasoning."""

    text: str


Block = Text | Thinking | ToolCall


class ChoiceAnswer(msgspec.Struct, frozen=True):
    """One choice, whole. ``blocks`` are in order of appearance (a call stands where it started) and never empty text.
    ``finish_reason`` and ``usage`` are None if an error ended the stream before the choice was closed."""

    index: int
    blocks: tuple[Block, ...] = ()
    refusal: str | None = None
    finish_reason: FinishReason | None = None
    stop_sequence: str | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """All visible text, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def reasoning(self) -> str:
        """All reasoning, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, Thinking))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Calls in order of appearance."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))


class Answer(msgspec.Struct, frozen=True):
    """A folded stream: its choices in order of their index, or what there was of them when ``error`` ended it.
    ``usage`` counts each prompt once and sums the completions."""

    choices: tuple[ChoiceAnswer, ...]
    usage: Usage
    error: Error | None = None


class UsageCounter:
    """Usage over all choices as deltas pass: each prompt once, completions summed; final numbers beat counted ones."""

    def __init__(self, choices: int = 1) -> None:
        self.open_choices = choices
        self._starts: list[Start] = []
        self._running: dict[int, int] = {}
        self._final: dict[int, Usage] = {}

    def feed(self, delta: Delta) -> None:
        """Take the next delta of a guarded stream."""
        if isinstance(delta, Start):
            self._starts.append(delta)
        elif isinstance(delta, Finish):
            self._final[delta.choice] = delta.usage
            self.open_choices -= 1
        elif not isinstance(delta, Error | Refusal) and delta.token_ids:
            self._running[delta.choice] = self._running.get(delta.choice, 0) + len(delta.token_ids)

    @property
    def closed(self) -> Usage:
        """Without the choices that still run."""
        first = [self._final[min(self._final)]] if self._final else []
        prompts: Sequence[Start | Usage] = self._starts or first
        return Usage(
            prompt_tokens=sum(prompt.prompt_tokens for prompt in prompts),
            completion_tokens=sum(usage.completion_tokens for usage in self._final.values()),
            cached_tokens=sum(prompt.cached_tokens for prompt in prompts),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in self._final.values()),
            drafted_tokens=sum(usage.drafted_tokens for usage in self._final.values()),
            accepted_tokens=sum(usage.accepted_tokens for usage in self._final.values()),
        )

    @property
    def total(self) -> Usage:
        """With the tokens of the choices that still run, as far as their deltas carry ids."""
        running = sum(count for choice, count in self._running.items() if choice not in self._final)
        closed = self.closed
        return replace(closed, completion_tokens=closed.completion_tokens + running)


class Folder:
    """The fold, one delta at a time, for encoders that need the answer so far."""

    def __init__(self) -> None:
        self._choices: dict[int, _ChoiceFold] = {}
        self._usage = UsageCounter()
        self._error: Error | None = None

    def feed(self, delta: Delta) -> None:
        """Take the next delta of a guarded stream."""
        self._usage.feed(delta)
        if isinstance(delta, Error):
            self._error = delta
        elif not isinstance(delta, Start):
            choice = self._choices.get(delta.choice)
            if choice is None:
                choice = self._choices[delta.choice] = _ChoiceFold()
            choice.feed(delta)

    @property
    def usage(self) -> Usage:
        """Total so far: each prompt once, the completions of the closed choices."""
        return self._usage.closed

    def choice(self, index: int) -> ChoiceAnswer:
        """One choice as it stands."""
        return self._choices.get(index, _ChoiceFold()).answer(index)

    def answer(self) -> Answer:
        """Everything as it stands."""
        choices = tuple(self.choice(index) for index in sorted(self._choices))
        return Answer(choices=choices, usage=self.usage, error=self._error)


class _Call:
    """A tool call whose arguments still grow."""

    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.fragments: list[str] = []


class _Run:
    """Text of one kind that still grows."""

    def __init__(self, kind: type[Text] | type[Thinking]) -> None:
        self.kind = kind
        self.pieces: list[str] = []


class _ChoiceFold:
    def __init__(self) -> None:
        self.blocks: list[_Run | _Call] = []
        self.calls: dict[int, _Call] = {}
        self.refusal: str | None = None
        self.finish: Finish | None = None
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []

    def feed(self, delta: Content | Reasoning | ToolCallStart | ToolCallArgs | Refusal | Finish) -> None:
        if isinstance(delta, Content):
            self._append(Text, delta.text)
        elif isinstance(delta, Reasoning):
            self._append(Thinking, delta.text)
        elif isinstance(delta, ToolCallStart):
            call = self.calls[delta.index] = _Call(delta)
            self.blocks.append(call)
        elif isinstance(delta, ToolCallArgs):
            self.calls[delta.index].fragments.append(delta.fragment)
        elif isinstance(delta, Refusal):
            self.refusal = delta.text
        else:
            self.finish = delta
        if isinstance(delta, Refusal):
            return
        self.token_ids.extend(delta.token_ids)
        if isinstance(delta, Content | Reasoning | Finish):
            self.logprobs.extend(delta.logprobs)

    def _append(self, kind: type[Text] | type[Thinking], text: str) -> None:
        if not text:
            return
        last = self.blocks[-1] if self.blocks else None
        if not (isinstance(last, _Run) and last.kind is kind):
            last = _Run(kind)
            self.blocks.append(last)
        last.pieces.append(text)

    def answer(self, index: int) -> ChoiceAnswer:
        return ChoiceAnswer(
            index=index,
            blocks=tuple(_frozen(block) for block in self.blocks),
            refusal=self.refusal,
            finish_reason=self.finish.reason if self.finish else None,
            stop_sequence=self.finish.stop_sequence if self.finish else None,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            usage=self.finish.usage if self.finish else None,
        )


def _frozen(block: _Run | _Call) -> Block:
    if isinstance(block, _Run):
        return block.kind("".join(block.pieces))
    return ToolCall(id=block.start.id, name=block.start.name, arguments="".join(block.fragments))


def fold(deltas: Iterable[Delta]) -> Answer:
    """The answer that a guarded stream's deltas tell."""
    folder = Folder()
    for delta in deltas:
        folder.feed(delta)
    return folder.answer()


async def collect(stream: AsyncIterable[Delta]) -> Answer:
    """Read a guarded stream to its end and fold it. An error is a field of the answer, not an exception."""
    folder = Folder()
    async for delta in stream:
        folder.feed(delta)
    return folder.answer()
