"""One conversation in the words of every chat surface, and an app whose engine plays what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import httpx

from millstream.engine.protocol import TokenRequest
from millstream.engine.scripted import ScriptedEngine, Step
from millstream.lint.messages_stream import lint_messages
from millstream.lint.openai_stream import Expectation, lint_chat
from millstream.lint.responses_stream import lint_responses
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.local import LocalProvider
from millstream.server.app import create_app
from millstream.server.settings import Settings
from support.readers import Seen, read
from support.scripted_model import THINK, UNTHINK, TinyTokenizer, info

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SURFACES = tuple(PATHS)

TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><tool_call>{% endif %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}<turn>{% endfor %}assistant:"
    "{# <think> </think> #}"
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = ("get_weather", "get_time")


class PlainTokenizer(TinyTokenizer):
    """Think tags are ordinary text here, as in Qwen 3."""

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) and token_id not in (THINK, UNTHINK)


def body(
    surface: str,
    *,
    stream: bool = False,
    tools: bool = False,
    tool_choice: str | None = None,
    parallel: bool = True,
    stop: tuple[str, ...] = (),
    max_tokens: int = 4000,
    logprobs: bool = False,
    store: bool = False,
    text: str = "hi",
) -> dict[str, Any]:
    """A request. ``tool_choice``: auto, none, required or a tool's name."""
    wire: dict[str, Any] = {"model": "tiny", "stream": stream}
    named = tool_choice in TOOLS
    if surface == "chat":
        wire |= {"messages": [{"role": "user", "content": text}], "max_completion_tokens": max_tokens}
        if stream:
            wire["stream_options"] = {"include_usage": True}
        if tools:
            functions = [{"name": name, "parameters": SCHEMA} for name in TOOLS]
            wire["tools"] = [{"type": "function", "function": function} for function in functions]
            wire["tool_choice"] = {"type": "function", "function": {"name": tool_choice}} if named else tool_choice
            wire["parallel_tool_calls"] = parallel
        wire |= {"stop": list(stop), "logprobs": logprobs}
    elif surface == "responses":
        wire |= {"input": text, "max_output_tokens": max_tokens, "store": store, "stop": list(stop)}
        if tools:
            wire["tools"] = [{"type": "function", "name": name, "parameters": SCHEMA} for name in TOOLS]
            wire["tool_choice"] = {"type": "function", "name": tool_choice} if named else tool_choice
            wire["parallel_tool_calls"] = parallel
        if logprobs:
            wire["include"] = ["message.output_text.logprobs"]
    else:
        wire |= {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
        wire["stop_sequences"] = list(stop)
        if tools:
            wire["tools"] = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]
            choice = {"type": "tool", "name": tool_choice} if named else {"type": tool_choice or "auto"}
            wire["tool_choice"] = {**choice, "type": choice["type"].replace("required", "any")}
            if choice["type"] != "none":
                wire["tool_choice"]["disable_parallel_tool_use"] = not parallel
    return wire


def faults(surface: str, raw: bytes, *, usage: bool = True) -> list[str]:
    """What the surface's lint has against a stream. ``usage``: whether it was asked for, in chat."""
    if surface == "chat":
        return [str(fault) for fault in lint_chat(raw, Expectation(choices=1, usage=usage))]
    lint: Callable[[bytes], Iterable[object]] = {"responses": lint_responses, "messages": lint_messages}[surface]
    return [str(fault) for fault in lint(raw)]


class Played:
    """An app over a local provider whose engine does what ``plan`` says (set it before each request)."""

    def __init__(
        self,
        tokenizer: TinyTokenizer | None = None,
        *,
        wrap: Callable[[Any], Any] = lambda inner: inner,
        **settings: Any,
    ) -> None:
        self.plan: Callable[[TokenRequest], Iterable[Step]] = lambda request: []
        self.tokenizer = tokenizer or PlainTokenizer()
        self.engine = ScriptedEngine(lambda request: self.plan(request), info=info(context_length=8192))
        template = JinjaChatTemplate(TEMPLATE)
        self.provider = LocalProvider(
            self.engine, tokenizer=self.tokenizer, template=template, tool_format="hermes", reasoning_format="think"
        )
        self.app = create_app(wrap(self.provider), self.engine.stats, Settings(**settings))

    async def post(self, surface: str, wire: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(PATHS.get(surface, f"/v1/{surface}"), json=wire)

    async def ask(self, surface: str, *, stream: bool, **fields: Any) -> Seen:
        """The answer; a stream is held against its surface's rules."""
        answer = await self.post(surface, body(surface, stream=stream, **fields))
        if stream and answer.status_code == 200:
            assert faults(surface, answer.content) == []
        return read(surface, answer.status_code, answer.content, stream=stream)
