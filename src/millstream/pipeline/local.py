"""The local provider: a request becomes token sequences on an engine, their tokens become deltas."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import NamedTuple

from millstream.engine.protocol import SamplingParams, TokenEngine, TokenRequest, TokenStream
from millstream.ir.channel import merge
from millstream.ir.deltas import Delta
from millstream.ir.errors import context_length_exceeded, invalid, model_not_found
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream, ModelCard
from millstream.ir.request import ChatRequest, CompletionRequest, Request, Sampling
from millstream.ir.threads import beside
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.calls import new_call_id
from millstream.pipeline.checks import GrammarChecker
from millstream.pipeline.choice import ChoiceDecoder
from millstream.pipeline.dialect import Dialect, Turn

LONG_TEXT = 32_768
"""Characters from which a prompt is made beside the event loop, so that it does not stall the streams of others."""

LONG_CONVERSATION = 64
"""Messages from which, for the same reason, a conversation is rendered there."""

LONG_LIST = 16_384
"""Token ids from which a list is turned to text there."""

SHRINKING = 4
"""A tokenizer's normaliser (NFC) makes no text shorter than this part of its bytes."""


class _Prompt(NamedTuple):
    """``turn`` is that of a chat request."""

    ids: list[int]
    turn: Turn | None = None


class LocalProvider:
    """Serves one model, under one name, on one token engine."""

    def __init__(
        self,
        engine: TokenEngine,
        *,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        name: str | None = None,
        created: int | None = None,
        tool_format: str | None = None,
        reasoning_format: str | None = None,
    ) -> None:
        """``name``: what clients call the model (None: the engine's own). ``created``: Unix seconds (None: now).
        ``tool_format`` and ``reasoning_format`` are names of `millstream.parsing.registry` (None: what the template
        teaches).

        Raises:
            ValueError: there is no format of such a name.
        """
        self._engine = engine
        self._tokenizer = tokenizer
        self._dialect = (
            Dialect(template, tokenizer, tool_format=tool_format, reasoning_format=reasoning_format)
            if template is not None
            else None
        )
        self._checker = GrammarChecker(self._dialect.control_tokens.values() if self._dialect is not None else ())
        self._table = TokenTable(tokenizer)
        self._longest: int | None = None
        self._name = name or engine.info.model
        self._created = int(time.time()) if created is None else created

    def models(self) -> list[ModelCard]:
        return [ModelCard(id=self._name, created=self._created, context_length=self._engine.info.context_length)]

    async def stream(self, request: Request) -> DeltaStream:
        """Queue the choices of a request; see `millstream.ir.provider.Provider`.

        Raises:
            ApiError: 404 unknown model; 400 prompt that is empty, has ids outside the vocabulary or does not fit the
                context, parameters that contradict each other; whatever the engine refuses.
        """
        self._check_model(request.model)
        _check(request, self._engine.info.vocab_size, self._tokenizer.eos_ids)
        context = self._engine.info.context_length
        prompt = await self._prompt(request, context)
        if len(prompt.ids) >= context:
            raise context_length_exceeded(len(prompt.ids), context, param=_prompt_field(request))
        if prompt.turn is not None and prompt.turn.grammar is not None:
            await self._checker.check(prompt.turn.grammar)
        choices: list[_ChoiceStream] = []
        stop = StopStrings(request.sampling.stop)
        try:
            for sequence in self._sequences(request, prompt, context - len(prompt.ids)):
                decoder = self._decoder(request, prompt, sequence, stop)
                choices.append(_ChoiceStream(await self._engine.submit(sequence), decoder))
        except BaseException:
            await asyncio.gather(*(choice.aclose() for choice in choices), return_exceptions=True)
            raise
        return guard(choices[0]) if len(choices) == 1 else merge(choices)

    async def render(self, request: ChatRequest) -> str:
        """See `millstream.ir.provider.PromptTools`."""
        self._check_model(request.model)
        return (await self._turn(request)).prompt

    async def prompt_tokens(self, request: ChatRequest) -> list[int]:
        """See `millstream.ir.provider.PromptTools`."""
        self._check_model(request.model)
        return (await self._prompt(request)).ids

    async def tokenize(self, text: str, *, model: str | None = None, add_special: bool = True) -> list[int]:
        """See `millstream.ir.provider.PromptTools`."""
        self._check_model(model)
        return await self._encode(text, add_bos=add_special)

    async def detokenize(self, tokens: Sequence[int], *, model: str | None = None) -> str:
        """See `millstream.ir.provider.PromptTools`."""
        self._check_model(model)
        _check_ids(tokens, self._engine.info.vocab_size, "tokens")
        if len(tokens) < LONG_LIST:
            return self._text(tokens)
        return await beside(self._text, tokens)

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self._tokenizer.token_bytes, tokens)).decode(errors="replace")

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._name:
            raise model_not_found(model, [self._name])

    def _decoder(self, request: Request, prompt: _Prompt, sequence: TokenRequest, stop: StopStrings) -> ChoiceDecoder:
        turn = prompt.turn
        return ChoiceDecoder(
            self._table,
            prompt_tokens=len(prompt.ids),
            choice=sequence.choice,
            stop=stop,
            stop_ids=frozenset(sequence.stop_ids),
            min_tokens=sequence.min_tokens,
            output=request.output,
            parser=turn.parser() if turn is not None and turn.parser is not None else None,
            parallel_calls=not isinstance(request, ChatRequest) or request.parallel_tool_calls,
            call_id=self._dialect.new_call_id if self._dialect is not None else new_call_id,
        )

    async def _prompt(self, request: Request, context: int | None = None) -> _Prompt:
        """The prompt; ``context``: what is certain not to fit this many tokens is refused before it is tokenised."""
        turn = None
        if isinstance(request, ChatRequest):
            turn = await self._turn(request)
            ids = await self._encode(turn.prompt, context=context, param="messages")
        elif isinstance(request.prompt, str):
            ids = await self._encode(request.prompt, context=context, param="prompt")
        else:
            if context is not None and len(request.prompt) >= context:
                raise context_length_exceeded(len(request.prompt), context, param="prompt")
            ids = list(request.prompt)
            _check_ids(ids, self._engine.info.vocab_size, "prompt")
        if not ids and self._tokenizer.bos_id is not None:
            ids = [self._tokenizer.bos_id]
        if not ids:
            raise invalid(
                "The prompt is empty, and this model has no token to begin a text with.", param=_prompt_field(request)
            )
        return _Prompt(ids, turn)

    async def _turn(self, request: ChatRequest) -> Turn:
        if self._dialect is None:
            raise invalid(
                f"The model {self._name!r} has no chat template. Use a completion request instead.", param="messages"
            )
        if _is_long(request):
            return await beside(self._dialect.turn, request)
        return self._dialect.turn(request)

    async def _encode(
        self, text: str, *, add_bos: bool = True, context: int | None = None, param: str = "prompt"
    ) -> list[int]:
        try:
            if len(text) < LONG_TEXT:
                return self._tokenizer.encode(text, add_bos=add_bos)
            if context is not None:
                least = len(text) // (SHRINKING * await self._longest_token())
                if least >= context:
                    raise context_length_exceeded(least, context, param=param, at_least=True)
            return await beside(self._tokenizer.encode, text, add_bos=add_bos)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.") from None

    async def _longest_token(self) -> int:
        """Bytes of the longest token; looked for when the first long text comes."""
        if self._longest is None:
            tokenizer = self._tokenizer
            self._longest = await beside(
                lambda: max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
            )
        return self._longest

    def _sequences(self, request: Request, prompt: _Prompt, room: int) -> Iterable[TokenRequest]:
        """The token request of each choice; ``room`` is the number of tokens the context leaves."""
        sampling = request.sampling
        identity = uuid.uuid4().hex
        eos = frozenset() if sampling.ignore_eos else self._tokenizer.eos_ids
        grammar = prompt.turn.grammar if prompt.turn is not None else None
        params = _params(sampling, request.output.logprobs, self._engine.info.vocab_size)
        for choice in range(request.n):
            yield TokenRequest(
                id=f"{identity}-{choice}",
                prompt=prompt.ids,
                sampling=params,
                max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
                min_tokens=min(sampling.min_tokens, room),
                stop_ids=tuple(sorted(eos | set(sampling.stop_token_ids))),
                choice=choice,
                tenant=request.tenant,
                priority=request.priority,
                grammar=grammar.text if grammar is not None else None,
            )


class _ChoiceStream:
    """Deltas of one choice, pulled from its token sequence; the sequence is aborted as soon as the choice has ended."""

    def __init__(self, tokens: TokenStream, decoder: ChoiceDecoder) -> None:
        self._tokens = tokens
        self._decoder = decoder
        self._ready: deque[Delta] = deque()
        self._closed = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            self._ready.extend(self._decoder.feed(await self._tokens.__anext__()))
            if self._decoder.finished:
                await self._abort()
        return self._ready.popleft()

    async def aclose(self) -> None:
        self._ready.clear()
        await self._abort()

    async def _abort(self) -> None:
        if not self._closed:
            self._closed = True
            await self._tokens.aclose()


def _prompt_field(request: Request) -> str:
    return "messages" if isinstance(request, ChatRequest) else "prompt"


def _params(sampling: Sampling, logprobs: int | None, vocab_size: int) -> SamplingParams:
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & (1 << 64) - 1
    return SamplingParams(
        temperature=sampling.temperature,
        top_k=min(sampling.top_k, vocab_size),
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=sampling.logit_bias,
        seed=seed,
        logprobs=logprobs,
    )


def _check(request: Request, vocab_size: int, eos_ids: frozenset[int]) -> None:
    """Refuse what no engine could honour."""
    sampling = request.sampling
    if request.n < 1:
        raise invalid(f"n must be at least 1, not {request.n}.", param="n")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise invalid(f"max_tokens must be at least 1, not {sampling.max_tokens}.", param="max_tokens")
    if sampling.min_tokens < 0:
        raise invalid(f"min_tokens must not be negative, but is {sampling.min_tokens}.", param="min_tokens")
    if sampling.max_tokens is not None and sampling.min_tokens > sampling.max_tokens:
        raise invalid(
            f"min_tokens ({sampling.min_tokens}) must not exceed max_tokens ({sampling.max_tokens}).",
            param="min_tokens",
        )
    if "" in sampling.stop:
        raise invalid("A stop string must not be empty.", param="stop")
    _check_ids(sampling.logit_bias, vocab_size, "logit_bias")
    _check_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")
    ends = set(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else eos_ids)
    if sampling.min_tokens > 0 and len(ends) >= vocab_size:
        raise invalid("stop_token_ids names every token, so none may come before min_tokens.", param="stop_token_ids")
    if isinstance(request, CompletionRequest) and request.echo:
        raise invalid("echo is not supported: send the request without it and prepend the prompt.", param="echo")


def _check_ids(ids: Collection[int], vocab_size: int, param: str) -> None:
    if not ids:
        return
    for token_id in (min(ids), max(ids)):
        if not 0 <= token_id < vocab_size:
            raise invalid(
                f"{param} names token {token_id}, but the model's token ids are 0 to {vocab_size - 1}.", param=param
            )


def _is_long(request: ChatRequest) -> bool:
    """Whether to render a conversation takes a while."""
    if len(request.messages) >= LONG_CONVERSATION or len(request.template_kwargs) >= LONG_CONVERSATION:
        return True
    return sum(len(message.content) for message in request.messages) >= LONG_TEXT or len(request.tools) >= 32
