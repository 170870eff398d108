"""The local provider: a request becomes token sequences on an engine, their tokens become deltas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.engine.protocol import ThinkingBudget, TokenEngine, TokenRequest
from millstream.ir.channel import merge
from millstream.ir.errors import context_length_exceeded, invalid, model_not_found
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream, Embeddings, ModelCard
from millstream.ir.request import ChatRequest, CompletionRequest, EmbeddingRequest, Request
from millstream.ir.threads import beside
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.bounds import LONG_TEXT, LONGEST_TEXT, LengthBound, text_length
from millstream.pipeline.calls import new_call_id
from millstream.pipeline.checks import GrammarChecker
from millstream.pipeline.choice import ChoiceDecoder
from millstream.pipeline.completions import Completer
from millstream.pipeline.control import SequenceCommands
from millstream.pipeline.dialect import Dialect, Turn
from millstream.pipeline.embeddings import Embedder
from millstream.pipeline.refusals import RefusalStage
from millstream.pipeline.sequences import (
    ChoiceStream,
    Decoder,
    check_ids,
    check_request,
    sampling_params,
    token_requests,
)
from millstream.pipeline.timeouts import deadline_of

LONG_CONVERSATION = 64
"""Messages from which, for the same reason, a conversation is rendered there."""

LONG_LIST = 16_384
"""Token ids from which a list is turned to text there."""


class _Prompt(NamedTuple):
    """A rendered conversation and its ids."""

    ids: list[int]
    turn: Turn


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
        refusals: bool = False,
        pooling: str = "mean",
    ) -> None:
        """``name``: what clients call the model (None: the engine's own). ``created``: Unix seconds (None: now).
        ``tool_format`` and ``reasoning_format`` are names of `millstream.parsing.registry` (None: what the template
        teaches). ``refusals``: tell answers that decline as such (`millstream.parsing.refusal`). ``pooling``: how
        hidden states become an embedding; for anything but a `Pooling` none are made.

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
        self._refusals = refusals
        self._table = TokenTable(tokenizer)
        self._bound = LengthBound(tokenizer)
        self._name = name or engine.info.model
        self._created = int(time.time()) if created is None else created
        self._completer = Completer(engine, tokenizer, self._table, self._bound)
        self._embedder = Embedder(engine, tokenizer, self._bound, pooling)
        commands = SequenceCommands(engine)
        self.sequences = commands.sequences
        self.hold = commands.hold
        self.release = commands.release
        self.reprioritise = commands.reprioritise

    def models(self) -> list[ModelCard]:
        return [ModelCard(id=self._name, created=self._created, context_length=self._engine.info.context_length)]

    async def stream(self, request: Request) -> DeltaStream:
        """Queue the choices of a request; see `millstream.ir.provider.Provider`.

        Raises:
            ApiError: 404 unknown model; 400 prompt that is empty, has ids outside the vocabulary or does not fit the
                context, parameters that contradict each other; whatever the engine refuses.
        """
        deadline = deadline_of(request.service)
        self._check_model(request.model)
        check_request(request, self._engine.info.vocab_size, self._tokenizer.eos_ids)
        if isinstance(request, CompletionRequest):
            return await self._completer.stream(request, deadline)
        context = self._engine.info.context_length
        prompt = await self._prompt(request, context)
        if len(prompt.ids) >= context:
            raise context_length_exceeded(len(prompt.ids), context, param="messages")
        if prompt.turn.grammar is not None:
            await self._checker.check(prompt.turn.grammar, request.tenant)
        choices: list[ChoiceStream] = []
        stop = StopStrings(request.sampling.stop)
        try:
            for sequence in self._sequences(request, prompt, context - len(prompt.ids), deadline):
                decoder: Decoder = self._decoder(request, prompt, sequence, stop)
                if self._refusals:
                    decoder = RefusalStage(decoder)
                choices.append(ChoiceStream(await self._engine.submit(sequence), decoder))
        except BaseException:
            await asyncio.gather(*(choice.aclose() for choice in choices), return_exceptions=True)
            raise
        return guard(choices[0]) if len(choices) == 1 else merge(choices)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """See `millstream.ir.provider.EmbeddingProvider`."""
        self._check_model(request.model)
        return await self._embedder.embed(request)

    async def render(self, request: ChatRequest) -> str:
        """See `millstream.ir.provider.PromptTools`."""
        self._check_model(request.model)
        prompt = (await self._turn(request)).prompt
        await self._bound.check(len(prompt), None, param="messages")
        return prompt

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
        check_ids(tokens, self._engine.info.vocab_size, "tokens")
        if len(tokens) < LONG_LIST:
            return self._text(tokens)
        return await beside(self._text, tokens)

    def _text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self._tokenizer.token_bytes, tokens)).decode(errors="replace")

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self._name:
            raise model_not_found(model, [self._name])

    def _decoder(
        self, request: ChatRequest, prompt: _Prompt, sequence: TokenRequest, stop: StopStrings
    ) -> ChoiceDecoder:
        turn = prompt.turn
        return ChoiceDecoder(
            self._table,
            prompt_tokens=len(prompt.ids),
            choice=sequence.choice,
            stop=stop,
            stop_ids=frozenset(sequence.stop_ids),
            min_tokens=sequence.min_tokens,
            output=request.output,
            parser=turn.parser() if turn.parser is not None else None,
            parallel_calls=request.parallel_tool_calls,
            call_id=self._dialect.new_call_id if self._dialect is not None else new_call_id,
        )

    async def _prompt(self, request: ChatRequest, context: int | None = None) -> _Prompt:
        """The prompt; ``context``: what is certain not to fit this many tokens is refused before it is tokenised."""
        turn = await self._turn(request, context)
        ids = await self._encode(turn.prompt, context=context, param="messages")
        if not ids and self._tokenizer.bos_id is not None:
            ids = [self._tokenizer.bos_id]
        if not ids:
            raise invalid("The prompt is empty, and this model has no token to begin a text with.", param="messages")
        return _Prompt(ids, turn)

    async def _turn(self, request: ChatRequest, context: int | None = None) -> Turn:
        """The rendered conversation; ``context`` as in `_prompt`. What is too long for anything is refused first: a
        template that is stopped over it would be blamed for what the request says."""
        if self._dialect is None:
            raise invalid(
                f"The model {self._name!r} has no chat template. Use a completion request instead.", param="messages"
            )
        length = text_length(request)
        if length > LONGEST_TEXT:
            await self._bound.check(length, _room(context), param="messages")
        if _takes_a_while(request, length):
            return await beside(self._dialect.turn, request)
        return self._dialect.turn(request)

    async def _encode(
        self, text: str, *, add_bos: bool = True, context: int | None = None, param: str = "prompt"
    ) -> list[int]:
        try:
            if len(text) < LONG_TEXT:
                return self._tokenizer.encode(text, add_bos=add_bos)
            await self._bound.check(len(text), _room(context), param=param)
            return await beside(self._tokenizer.encode, text, add_bos=add_bos)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.") from None

    def _sequences(
        self, request: ChatRequest, prompt: _Prompt, room: int, deadline: float | None
    ) -> Iterable[TokenRequest]:
        """The token request of each choice; ``room`` is the number of tokens the context leaves."""
        ends = frozenset() if request.sampling.ignore_eos else self._tokenizer.eos_ids
        grammar = prompt.turn.grammar
        params = sampling_params(request.sampling, request.output.logprobs, self._engine.info.vocab_size)
        text = grammar.text if grammar is not None else None
        return token_requests(
            request,
            prompt.ids,
            count=request.n,
            ends=ends,
            room=room,
            params=params,
            deadline=deadline,
            grammar=text,
            thinking=self._budget(request, prompt.turn),
        )

    def _budget(self, request: ChatRequest, turn: Turn) -> ThinkingBudget | None:
        """The limit of a choice's reasoning; none if there is nothing to limit."""
        limit = request.reasoning_budget
        if limit is None or turn.thoughts is None:
            return None
        opening, close = turn.thoughts
        return ThinkingBudget(limit, close, self._tokenizer.encode(close), opening)


def _room(context: int | None) -> int | None:
    """Most tokens of a prompt that an answer must follow; None: any number."""
    return None if context is None else context - 1


def _takes_a_while(request: ChatRequest, length: int) -> bool:
    """Whether to render a conversation of so many characters does."""
    if len(request.messages) >= LONG_CONVERSATION or len(request.template_kwargs) >= LONG_CONVERSATION:
        return True
    return length >= LONG_TEXT or len(request.tools) >= 32
