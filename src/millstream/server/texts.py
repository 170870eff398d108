"""Small routes about text and tokens: counting, tokenising, the chat template. None of them waits for the engine."""

from __future__ import annotations

from starlette.routing import Route

from millstream.ir.errors import ApiError, no_model
from millstream.ir.provider import ModelCard, PromptTools, Provider
from millstream.server.decoding import decoded
from millstream.server.metrics import Metrics
from millstream.server.replies import Reply, ReplyRoute
from millstream.server.settings import Settings
from millstream.server.tenants import Terms
from millstream.surfaces import anthropic_messages, texts


class TextRoutes:
    """The handlers; each reads a body and gives what is to be said."""

    def __init__(self, provider: Provider, metrics: Metrics, settings: Settings) -> None:
        self._provider = provider
        self._metrics = metrics
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        handlers = {
            "/v1/messages/count_tokens": ("count_tokens", self.count_tokens),
            "/tokenize": ("tokenize", self.tokenize),
            "/detokenize": ("detokenize", self.detokenize),
            "/apply-template": ("apply_template", self.apply_template),
        }
        return [
            Route(path, ReplyRoute(name, handler, self._metrics, self._settings), methods=["POST"])
            for path, (name, handler) in handlers.items()
        ]

    async def count_tokens(self, body: bytes, terms: Terms) -> Reply:
        call = await decoded(len(body), anthropic_messages.decode_count, body, self._settings.limits)
        request = texts.chat_of(call)
        terms.model(request.model)
        tokens = await self._tools().prompt_tokens(request)
        return {"input_tokens": len(tokens)}, call.warnings

    async def tokenize(self, body: bytes, terms: Terms) -> Reply:
        ask = await decoded(len(body), texts.decode_tokenize, body, self._settings.limits)
        tools = self._tools()
        model = self._model(ask.model, terms)
        if ask.conversation is None:
            tokens = await tools.tokenize(ask.text, model=model, add_special=ask.add_special)
        else:
            tokens = await tools.prompt_tokens(texts.named(ask.conversation, model))
        reply: dict[str, object] = {"tokens": list(tokens), "count": len(tokens)}
        return {**reply, "max_model_len": self._context_length(model)}, ()

    async def detokenize(self, body: bytes, terms: Terms) -> Reply:
        ask = await decoded(len(body), texts.decode_detokenize, body)
        text = await self._tools().detokenize(ask.tokens, model=self._model(ask.model, terms))
        # llama.cpp's clients look for `content`.
        return {"prompt": text, "content": text}, ()

    async def apply_template(self, body: bytes, terms: Terms) -> Reply:
        request = await decoded(len(body), texts.decode_template, body, self._settings.limits)
        asked = None if request.model == texts.ANY_MODEL else request.model
        return {"prompt": await self._tools().render(texts.named(request, self._model(asked, terms)))}, ()

    def _tools(self) -> PromptTools:
        if isinstance(self._provider, PromptTools):
            return self._provider
        raise ApiError(
            "What answers here makes no prompts of its own: it can neither show nor count them.",
            type="server_error",
            code="not_supported",
            status=501,
        )

    def _model(self, asked: str | None, terms: Terms) -> str:
        """The model that is asked for; if none is named, the first that the key may use. Raises `ApiError` (404; 503:
        there is none)."""
        if asked is not None:
            return terms.model(asked)
        for card in terms.visible(self._cards()):
            return card.id
        raise no_model()

    def _context_length(self, model: str) -> int:
        cards = self._cards()
        return next((card for card in cards if card.id == model), cards[0]).context_length

    def _cards(self) -> list[ModelCard]:
        """The models, at least one. Raises `ApiError`."""
        if cards := self._provider.models():
            return cards
        raise no_model()
