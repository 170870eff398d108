"""The local provider: a request becomes token sequences on an engine, their tokens become deltas."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable

from millstream.engine.protocol import TokenEngine, TokenRequest
from millstream.ir.channel import merge
from millstream.ir.errors import context_length_exceeded, invalid, model_not_found
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream, ModelCard
from millstream.ir.request import ChatRequest, CompletionRequest, Request
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.choice import ChoiceDecoder, Parser
from millstream.pipeline.completions import LONG_TEXT, Completer
from millstream.pipeline.sequences import ChoiceStream, check_request, sampling_params

ParserFactory = Callable[[ChatRequest], Parser | None]


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
        parser: ParserFactory | None = None,
    ) -> None:
        """``name``: what clients call the model (None: the engine's own). ``created``: Unix seconds (None: now).
        ``parser`` makes the reasoning and tool parser of each choice of a chat request."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._template = template
        self._table = TokenTable(tokenizer)
        self._name = name or engine.info.model
        self._created = int(time.time()) if created is None else created
        self._parser = parser
        self._completer = Completer(engine, tokenizer, self._table)

    def models(self) -> list[ModelCard]:
        return [ModelCard(id=self._name, created=self._created, context_length=self._engine.info.context_length)]

    async def stream(self, request: Request) -> DeltaStream:
        """Queue the choices of a request; see `millstream.ir.provider.Provider`.

        Raises:
            ApiError: 404 unknown model; 400 prompt that is empty, has ids outside the vocabulary or does not fit the
                context, parameters that contradict each other; whatever the engine refuses.
        """
        if request.model != self._name:
            raise model_not_found(request.model, [self._name])
        check_request(request, self._engine.info.vocab_size)
        if isinstance(request, CompletionRequest):
            return await self._completer.stream(request)
        prompt = await self._prompt(request)
        context = self._engine.info.context_length
        if len(prompt) >= context:
            raise context_length_exceeded(len(prompt), context, param="messages")
        sequences = self._sequences(request, prompt, context - len(prompt))
        stop = StopStrings(request.sampling.stop)
        choices: list[ChoiceStream] = []
        try:
            for sequence in sequences:
                decoder = ChoiceDecoder(
                    self._table,
                    prompt_tokens=len(prompt),
                    choice=sequence.choice,
                    stop=stop,
                    stop_ids=frozenset(sequence.stop_ids),
                    min_tokens=sequence.min_tokens,
                    output=request.output,
                    parser=self._parser(request) if self._parser else None,
                )
                choices.append(ChoiceStream(await self._engine.submit(sequence), decoder))
        except BaseException:
            await asyncio.gather(*(choice.aclose() for choice in choices), return_exceptions=True)
            raise
        return guard(choices[0]) if len(choices) == 1 else merge(choices)

    async def _prompt(self, request: ChatRequest) -> list[int]:
        prompt = await self._encode(self._render(request))
        if not prompt and self._tokenizer.bos_id is not None:
            prompt = [self._tokenizer.bos_id]
        if not prompt:
            raise invalid("The prompt is empty, and this model has no token to begin a text with.", param="messages")
        return prompt

    def _render(self, request: ChatRequest) -> str:
        if self._template is None:
            raise invalid(
                f"The model {self._name!r} has no chat template. Use a completion request instead.", param="messages"
            )
        tools = request.tools if request.tool_choice.mode != "none" else ()
        if tools and self._parser is None:
            raise invalid(f"Tool calls are not supported for the model {self._name!r}.", param="tools")
        return self._template.render(request.messages, tools=tools, kwargs=request.template_kwargs)

    async def _encode(self, text: str) -> list[int]:
        try:
            if len(text) < LONG_TEXT:
                return self._tokenizer.encode(text, add_bos=True)
            return await asyncio.to_thread(self._tokenizer.encode, text, add_bos=True)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.") from None

    def _sequences(self, request: ChatRequest, prompt: list[int], room: int) -> Iterable[TokenRequest]:
        """The token request of each choice; ``room`` is the number of tokens the context leaves."""
        sampling = request.sampling
        identity = uuid.uuid4().hex
        eos = frozenset() if sampling.ignore_eos else self._tokenizer.eos_ids
        params = sampling_params(sampling, request.output.logprobs)
        for choice in range(request.n):
            yield TokenRequest(
                id=f"{identity}-{choice}",
                prompt=prompt,
                sampling=params,
                max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
                min_tokens=min(sampling.min_tokens, room),
                stop_ids=tuple(sorted(eos | set(sampling.stop_token_ids))),
                choice=choice,
                tenant=request.tenant,
                priority=request.priority,
            )
