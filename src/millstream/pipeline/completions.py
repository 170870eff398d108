"""Raw completions: a batch of prompts becomes token sequences, and these one stream of numbered choices."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple

from millstream.engine.protocol import TokenEngine, TokenRequest
from millstream.ir.channel import merge
from millstream.ir.deltas import Delta
from millstream.ir.errors import invalid
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream
from millstream.ir.request import CompletionRequest, Output
from millstream.models.infill import Infill, find_infill
from millstream.models.interfaces import Tokenizer
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.bounds import LengthBound
from millstream.pipeline.choice import ChoiceDecoder
from millstream.pipeline.echo import Echo, PromptStage, ScoredEcho, ScoredPrompt, WholeEcho, echoed, shown_tokens
from millstream.pipeline.prompts import PromptReader, Wire
from millstream.pipeline.ranking import BestOf
from millstream.pipeline.sequences import ChoiceStream, sampling_params, token_requests


class _Prompt(NamedTuple):
    """What the engine reads, what an echo shows, and what else ends the answer. ``held``: bytes of a character that the
    text leaves incomplete; ``scored``: the echo has log probabilities."""

    ids: list[int]
    text: str = ""
    held: bytes = b""
    scored: ScoredPrompt | None = None
    stop_ids: frozenset[int] = frozenset()


class Completer:
    """Answers completion requests on one engine. Requests have passed `check_request`."""

    def __init__(self, engine: TokenEngine, tokenizer: Tokenizer, table: TokenTable, bound: LengthBound) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._table = table
        self._reader = PromptReader(tokenizer, bound, engine.info.vocab_size)
        self._infill = find_infill(tokenizer)

    async def stream(self, request: CompletionRequest, deadline: float | None) -> DeltaStream:
        """Queue every sequence of the batch. ``deadline``: by the monotonic clock.

        Raises:
            ApiError: 400 for a prompt that cannot be run, by its path, or parameters that contradict each other;
                whatever the engine refuses.
        """
        self._check(request)
        prompts = await self._prompts(request)
        if request.sampling.max_tokens == 0 and not _scores(request):
            return guard(_echo(request, prompts), choices=request.choices)
        drawn = _drawn(request)
        streams: list[DeltaStream] = []
        try:
            for index, prompt in enumerate(prompts):
                await self._queue(request, index, prompt, drawn, deadline, streams)
        except BaseException:
            await asyncio.gather(*(stream.aclose() for stream in streams), return_exceptions=True)
            raise
        if drawn > request.n:
            streams = self._ranked(request, streams, drawn)
        if len(streams) == 1:
            return guard(streams[0], choices=request.choices)
        return merge(streams, choices=request.choices)

    def _check(self, request: CompletionRequest) -> None:
        if not request.prompts:
            raise invalid("There must be at least one prompt.", param="prompt")
        if request.best_of is not None and request.best_of < request.n:
            raise invalid(f"best_of ({request.best_of}) must not be less than n ({request.n}).", param="best_of")
        if request.suffix is not None and self._infill is None:
            raise invalid(
                "suffix is not supported: the model has no fill-in-the-middle tokens.",
                param="suffix",
                code="unsupported_parameter",
            )

    async def _prompts(self, request: CompletionRequest) -> list[_Prompt]:
        answered = request.sampling.max_tokens != 0
        longest = self._engine.info.context_length - answered
        make = partial(self._prompt, request)
        return await self._reader.read(request.prompts, make, field="prompt", longest=longest, answered=answered)

    def _prompt(self, request: CompletionRequest, wire: Wire, path: str) -> _Prompt:
        if request.suffix is not None and self._infill is not None:
            prompt, text_ids = self._filled(self._infill, request.suffix, wire, path)
        else:
            prompt = _Prompt(self._reader.encode(wire, path))
            text_ids = range(len(prompt.ids)) if wire else range(0)
        if not request.echo:
            return prompt
        if isinstance(wire, str) and not _scores(request):
            return prompt._replace(text=wire)
        raw = [self._token_bytes(prompt.ids[index]) for index in text_ids]
        if not _scores(request):
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            return prompt._replace(text=decoder.decode(b"".join(raw)), held=decoder.getstate()[0])
        shown: list[bytes | None] = [None] * len(prompt.ids)
        if text_ids:
            is_bos = prompt.ids[text_ids.start] == self._tokenizer.bos_id
            text = shown_tokens(raw, wire, bos=is_bos) if isinstance(wire, str) else raw
            shown[text_ids.start : text_ids.stop] = text
        scored = ScoredPrompt(prompt.ids, shown)
        return prompt._replace(held=scored.held, scored=scored)

    def _filled(self, infill: Infill, suffix: str, wire: Wire, path: str) -> tuple[_Prompt, range]:
        """A prompt that asks for what stands before ``suffix``, and where the text of ``wire`` is in it."""
        # Markers inside the two texts are text: only ours divide the prompt.
        if isinstance(wire, str):
            before = self._reader.encode_text(wire, path, parse_special=False)
        else:
            before = self._reader.encode(wire, path) if wire else []
        after = self._reader.encode_text(suffix, "suffix", parse_special=False)
        ids = self._tokenizer.encode("", add_bos=True) + infill.prompt(before, after)
        begin = ids.index(infill.prefix) + 1
        return _Prompt(ids, stop_ids=infill.ends), range(begin, begin + len(before))

    def _token_bytes(self, token_id: int) -> bytes:
        # Ids beyond the tokenizer are padding of the embedding table.
        return self._tokenizer.token_bytes(token_id) if token_id < self._tokenizer.vocab_size else b""

    async def _queue(
        self,
        request: CompletionRequest,
        index: int,
        prompt: _Prompt,
        drawn: int,
        deadline: float | None,
        streams: list[DeltaStream],
    ) -> None:
        """Queue the ``drawn`` sequences of one prompt and add their streams, in order."""
        stop = StopStrings(request.sampling.stop)
        ranked = drawn > request.n
        output = Output(request.output.logprobs or 0, request.output.token_ids) if ranked else request.output
        for sequence in self._sequences(request, prompt, drawn, output, deadline):
            # The random numbers of a choice are those that it has without the rest of the batch.
            place, choice = (0, 0) if ranked else (index, index * request.n + sequence.choice)
            decoder = ChoiceDecoder(
                self._table,
                prompt_tokens=len(prompt.ids),
                choice=choice,
                stop=stop,
                stop_ids=frozenset(sequence.stop_ids),
                min_tokens=sequence.min_tokens,
                output=output,
                held=prompt.held,
            )
            stage = PromptStage(decoder, prompt=place, echo=self._echo(request, prompt, choice))
            streams.append(ChoiceStream(await self._engine.submit(sequence), stage))

    def _echo(self, request: CompletionRequest, prompt: _Prompt, choice: int) -> Echo | None:
        if prompt.scored is not None:
            count = request.output.logprobs or 0
            return ScoredEcho(prompt.scored, self._table, alternatives=count, choice=choice)
        return WholeEcho(prompt.text, choice) if request.echo else None

    def _sequences(
        self, request: CompletionRequest, prompt: _Prompt, drawn: int, output: Output, deadline: float | None
    ) -> list[TokenRequest]:
        sampling = request.sampling
        return token_requests(
            request,
            prompt.ids,
            count=drawn,
            ends=frozenset() if sampling.ignore_eos else self._tokenizer.eos_ids | prompt.stop_ids,
            room=self._engine.info.context_length - len(prompt.ids),
            params=sampling_params(sampling, output.logprobs, self._engine.info.vocab_size),
            deadline=deadline,
            prompt_logprobs=request.output.logprobs if prompt.scored is not None else None,
        )

    def _ranked(self, request: CompletionRequest, streams: list[DeltaStream], drawn: int) -> list[DeltaStream]:
        return [
            BestOf(
                [guard(stream, choices=1) for stream in streams[index * drawn : (index + 1) * drawn]],
                n=request.n,
                prompt=index,
                logprobs=request.output.logprobs is not None,
                scored=_scores(request),
            )
            for index in range(len(request.prompts))
        ]


def _scores(request: CompletionRequest) -> bool:
    """Whether log probabilities of the prompts are asked for."""
    return request.echo and request.output.logprobs is not None


def _drawn(request: CompletionRequest) -> int:
    """Sequences per prompt. Without an answer there is none that is best."""
    return request.n if request.sampling.max_tokens == 0 else request.best_of or request.n


async def _echo(request: CompletionRequest, prompts: Sequence[_Prompt]) -> AsyncIterator[Delta]:
    """The prompts themselves: nothing is generated."""
    for choice in range(request.choices):
        index = choice // request.n
        prompt = prompts[index]
        text = prompt.text + prompt.held.decode("utf-8", "replace")
        for delta in echoed(text, prompt=index, choice=choice, tokens=len(prompt.ids)):
            yield delta
