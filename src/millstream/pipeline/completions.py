"""Raw completions: a batch of prompts becomes token sequences, and these one stream of numbered choices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from millstream.engine.protocol import TokenEngine, TokenRequest
from millstream.ir.channel import merge
from millstream.ir.deltas import Delta
from millstream.ir.errors import context_length_exceeded, invalid
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream
from millstream.ir.request import CompletionRequest, Output
from millstream.ir.threads import beside
from millstream.models.infill import find_infill
from millstream.models.interfaces import Tokenizer
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.bounds import LONG_TEXT, LengthBound
from millstream.pipeline.choice import ChoiceDecoder
from millstream.pipeline.echo import PromptStage, echoed
from millstream.pipeline.ranking import BestOf
from millstream.pipeline.sequences import ChoiceStream, check_ids, sampling_params, token_requests
from millstream.pipeline.timeouts import timely


class _Prompt(NamedTuple):
    """What the engine reads, what an echo shows, and what else ends the answer."""

    ids: list[int]
    text: str
    stop_ids: frozenset[int]


class Completer:
    """Answers completion requests on one engine. Requests have passed `check_request`."""

    def __init__(self, engine: TokenEngine, tokenizer: Tokenizer, table: TokenTable, bound: LengthBound) -> None:
        self._engine = engine
        self._bound = bound
        self._tokenizer = tokenizer
        self._table = table
        self._infill = find_infill(tokenizer)

    async def stream(self, request: CompletionRequest) -> DeltaStream:
        """Queue every sequence of the batch.

        Raises:
            ApiError: 400 for a prompt that cannot be run, by its path, or parameters that contradict each other;
                whatever the engine refuses.
        """
        self._check(request)
        prompts = await self._prompts(request)
        if request.sampling.max_tokens == 0:
            return guard(_echo(request, prompts), choices=request.choices)
        streams: list[DeltaStream] = []
        try:
            for index, prompt in enumerate(prompts):
                await self._queue(request, index, prompt, streams)
        except BaseException:
            await asyncio.gather(*(stream.aclose() for stream in streams), return_exceptions=True)
            raise
        if request.best_of is not None and request.best_of > 1:
            streams = self._ranked(request, streams, request.best_of)
        if len(streams) == 1:
            stream = guard(streams[0], choices=request.choices)
        else:
            stream = merge(streams, choices=request.choices)
        return timely(stream, request.service, choices=request.choices)

    def _check(self, request: CompletionRequest) -> None:
        if not request.prompts:
            raise invalid("There must be at least one prompt.", param="prompt")
        if request.best_of is not None and request.best_of < request.n:
            raise invalid(f"best_of ({request.best_of}) must not be less than n ({request.n}).", param="best_of")
        if request.echo and request.output.logprobs is not None:
            raise invalid(
                "echo with logprobs is not supported: log probabilities of the prompt are not computed.",
                param="echo",
                code="unsupported_parameter",
            )
        if request.suffix is not None and self._infill is None:
            raise invalid(
                "suffix is not supported: the model has no fill-in-the-middle tokens.",
                param="suffix",
                code="unsupported_parameter",
            )

    async def _prompts(self, request: CompletionRequest) -> list[_Prompt]:
        context = self._engine.info.context_length
        for index, prompt in enumerate(request.prompts if request.sampling.max_tokens != 0 else ()):
            if isinstance(prompt, str):
                await self._bound.check(prompt, context, param=_path(request, index))
            elif len(prompt) >= context:
                raise context_length_exceeded(len(prompt), context, param=_path(request, index))
        characters = sum(len(prompt) for prompt in request.prompts) + len(request.suffix or "")
        if characters < LONG_TEXT:
            return self._encode_all(request)
        return await beside(self._encode_all, request)

    def _encode_all(self, request: CompletionRequest) -> list[_Prompt]:
        prompts = []
        for index, wire in enumerate(request.prompts):
            path = _path(request, index)
            prompt = self._encode(wire, request.suffix, path)
            context = self._engine.info.context_length
            if len(prompt.ids) >= context and request.sampling.max_tokens != 0:
                raise context_length_exceeded(len(prompt.ids), context, param=path)
            prompts.append(prompt)
        return prompts

    def _encode(self, wire: str | tuple[int, ...], suffix: str | None, path: str) -> _Prompt:
        tokenizer = self._tokenizer
        if isinstance(wire, str):
            text = wire
        else:
            check_ids(wire, self._engine.info.vocab_size, path)
            text = b"".join(map(self._token_bytes, wire)).decode("utf-8", "replace")
        try:
            if suffix is not None and self._infill is not None:
                # Markers inside the two texts are text: only ours divide the prompt.
                before = tokenizer.encode(wire, parse_special=False) if isinstance(wire, str) else wire
                after = tokenizer.encode(suffix, parse_special=False)
                ids = tokenizer.encode("", add_bos=True) + self._infill.prompt(before, after)
                return _Prompt(ids, text, self._infill.ends)
            ids = tokenizer.encode(wire, add_bos=True) if isinstance(wire, str) else list(wire)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.", param=path) from None
        if not ids and tokenizer.bos_id is not None:
            ids = [tokenizer.bos_id]
        if not ids:
            raise invalid("The prompt is empty, and this model has no token to begin a text with.", param=path)
        return _Prompt(ids, text, frozenset())

    def _token_bytes(self, token_id: int) -> bytes:
        # Ids beyond the tokenizer are padding of the embedding table.
        return self._tokenizer.token_bytes(token_id) if token_id < self._tokenizer.vocab_size else b""

    async def _queue(self, request: CompletionRequest, index: int, prompt: _Prompt, streams: list[DeltaStream]) -> None:
        """Queue the sequences of one prompt and add their streams, in order."""
        stop = StopStrings(request.sampling.stop)
        drawn = request.best_of or request.n
        ranked = drawn > 1 and request.best_of is not None
        output = Output(request.output.logprobs or 0, request.output.token_ids) if ranked else request.output
        for sequence in self._sequences(request, prompt, output):
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
            )
            stage = PromptStage(decoder, prompt=place, choice=choice, text=prompt.text if request.echo else None)
            streams.append(ChoiceStream(await self._engine.submit(sequence), stage))

    def _sequences(self, request: CompletionRequest, prompt: _Prompt, output: Output) -> list[TokenRequest]:
        sampling = request.sampling
        room = self._engine.info.context_length - len(prompt.ids)
        ends = frozenset() if sampling.ignore_eos else self._tokenizer.eos_ids | prompt.stop_ids
        params = sampling_params(sampling, output.logprobs, self._engine.info.vocab_size)
        count = request.best_of or request.n
        return token_requests(request, prompt.ids, count=count, ends=ends, room=room, params=params)

    def _ranked(self, request: CompletionRequest, streams: list[DeltaStream], drawn: int) -> list[DeltaStream]:
        asked = request.output.logprobs is not None
        return [
            BestOf(
                [guard(stream, choices=1) for stream in streams[index * drawn : (index + 1) * drawn]],
                n=request.n,
                prompt=index,
                logprobs=asked,
            )
            for index in range(len(request.prompts))
        ]


async def _echo(request: CompletionRequest, prompts: Sequence[_Prompt]) -> AsyncIterator[Delta]:
    """The prompts themselves: nothing is generated."""
    for choice in range(request.choices):
        index = choice // request.n
        prompt = prompts[index]
        for delta in echoed(prompt.text, prompt=index, choice=choice, tokens=len(prompt.ids)):
            yield delta


def _path(request: CompletionRequest, index: int) -> str:
    """The field of a prompt."""
    return "prompt" if len(request.prompts) == 1 else f"prompt[{index}]"
