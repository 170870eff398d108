"""Laws 1 to 4 over the answers that a token sequence can be cut into, with a model's own tokenizer and formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from millstream.engine.protocol import EngineInfo, TokenRequest
from millstream.engine.scripted import ScriptedEngine, Step, script
from millstream.ir.deltas import Content, Delta, Error, Finish, Reasoning, Start
from millstream.ir.fold import Answer, fold
from millstream.ir.request import ChatRequest, CompletionRequest, Message, Output, Request, Sampling, Tool
from millstream.lint.explain import lint_capture
from millstream.models.assets import ModelAssets
from millstream.pipeline.local import LocalProvider
from millstream.selftest import readers
from millstream.selftest.readers import Called, Reader, Said
from millstream.surfaces import anthropic_messages, openai_chat, openai_completions, responses
from millstream.surfaces.partial_json import as_object
from millstream.surfaces.responses import ResponsesOptions
from millstream.surfaces.wire import Surface, WireOptions

TOOLS = (
    Tool(
        "get_weather",
        description="Current weather of a city.",
        parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
)
WIRES: dict[str, tuple[Surface, WireOptions, Reader, Reader]] = {
    "chat": (openai_chat, WireOptions(stream=True, usage=True), readers.read_chat, readers.whole_chat),
    "completions": (
        openai_completions, WireOptions(stream=True, usage=True), readers.read_completions, readers.whole_completions,
    ),
    "responses": (responses, ResponsesOptions(stream=True), readers.read_responses, readers.whole_responses),
    "messages": (anthropic_messages, WireOptions(stream=True), readers.read_messages, readers.whole_messages),
}  # fmt: skip
"""How each surface writes, and how its clients read a stream and a whole answer."""


class Broken(Exception):
    """A law does not hold; the message says for what."""


class Player:
    """Answers with given tokens through the pipeline that a server would use for this model."""

    def __init__(self, assets: ModelAssets, info: EngineInfo) -> None:
        self._assets = assets
        self._tokens: Sequence[int] = ()
        self._cuts: Sequence[int] | None = None
        engine = ScriptedEngine(self._plan, info=info)
        # One provider for all: it reads a vocabulary once.
        self._provider = LocalProvider(engine, tokenizer=assets.tokenizer, template=assets.template, name=assets.name)

    async def deltas(self, request: Request, tokens: Sequence[int], cuts: Sequence[int] | None) -> list[Delta]:
        """The answer whose engine steps begin at ``cuts`` (None: one token a step)."""
        self._tokens, self._cuts = tokens, cuts
        return [delta async for delta in await self._provider.stream(request)]

    def _plan(self, asked: TokenRequest) -> Iterable[Step]:
        return script(asked, self._tokens, cuts=self._cuts, then="length")

    def chat(self, **sampling: object) -> ChatRequest:
        """A question that offers a tool."""
        return ChatRequest(
            model=self._assets.name,
            messages=(Message("user", "What is the weather in Oslo?"),),
            tools=TOOLS,
            sampling=msgspec.convert(sampling, Sampling),
            output=Output(token_ids=True),
        )

    def completion(self) -> CompletionRequest:
        """A raw text to be continued, whatever comes."""
        sampling = Sampling(ignore_eos=True)
        return CompletionRequest(
            model=self._assets.name, prompts=("Once",), sampling=sampling, output=Output(token_ids=True)
        )

    def text(self, tokens: Sequence[int]) -> str:
        """What the tokens say, decoded as a whole: control tokens have no text."""
        tokenizer = self._assets.tokenizer
        parts: list[str] = []
        run = b""
        for token in tokens:
            if tokenizer.is_special(token) or token in tokenizer.eos_ids:
                parts.append(run.decode("utf-8", "replace"))
                run = b""
            else:
                run += tokenizer.token_bytes(token)
        return "".join([*parts, run.decode("utf-8", "replace")])


def some_cuts(tokens: Sequence[int], random: Random) -> list[list[int]]:
    """All at once, and three random cuts."""
    places = range(1, max(2, len(tokens)))
    return [[], *(sorted(random.sample(places, random.randint(0, len(places)))) for _ in range(3))]


def check_one_end(deltas: Sequence[Delta]) -> None:
    """Law 1: a `Start`, then content, then one terminal event."""
    ends = [delta for delta in deltas if isinstance(delta, Finish | Error)]
    if len(ends) != 1 or deltas[-1] is not ends[0]:
        raise Broken(f"{len(ends)} terminal events")
    if isinstance(ends[0], Error):
        raise Broken(f"the stream failed: {ends[0].message}")
    if not isinstance(deltas[0], Start):
        raise Broken("the stream does not begin with its start")


def essence(answer: Answer) -> tuple[object, ...]:
    """An answer without what is minted anew each time: the ids of its calls."""
    (choice,) = answer.choices
    blocks = [
        (type(block).__name__, getattr(block, "text", None), getattr(block, "name", None),
         getattr(block, "arguments", None))
        for block in choice.blocks
    ]  # fmt: skip
    return (blocks, choice.finish_reason, choice.token_ids, choice.usage, choice.stop_sequence)


def check_partition(whole: Sequence[Delta], cut: Sequence[Delta]) -> None:
    """Law 2: the same tokens in other steps fold to the same answer."""
    if essence(fold(whole)) != essence(fold(cut)):
        raise Broken(f"{essence(fold(whole))} became {essence(fold(cut))}")


def check_surface(name: str, deltas: list[Delta]) -> Said:
    """Law 3: a surface's stream is legal, and its client has what the whole answer says."""
    surface, options, read, read_whole = WIRES[name]
    encoder = surface.stream_encoder(options)
    raw = encoder.start() + b"".join(encoder.encode(delta) for delta in deltas) + encoder.end()
    for fault in lint_capture(raw, name):
        # The model wrote the arguments, and may have been cut.
        if fault.rule != "arguments":
            raise Broken(f"{name}: {fault.message} ({fault.expected})")
    streamed, whole = read(raw), read_whole(surface.encode_answer(fold(deltas), options))
    for field, one, other in differences(streamed, whole):
        raise Broken(f"{name}: {field} streamed: {one!r}, whole: {other!r}")
    return whole


def differences(one: Said, other: Said) -> Iterator[tuple[str, object, object]]:
    """The fields in which two answers differ, with both values. Arguments are text on both sides, or compared as the
    objects they are: where one is an object, of a text that was cut what is complete counts."""
    for field in one.__struct_fields__:
        mine, yours = getattr(one, field), getattr(other, field)
        if field == "calls":
            mine, yours = _comparable(one.calls, other.calls), _comparable(other.calls, one.calls)
        if mine != yours:
            yield field, mine, yours


def _comparable(calls: Sequence[Called], others: Sequence[Called]) -> list[Called]:
    objects = any(isinstance(call.arguments, dict) for call in (*calls, *others))
    return [msgspec.structs.replace(call, arguments=_object(call.arguments)) for call in calls] if objects else [*calls]


def _object(arguments: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return arguments
    value: dict[str, Any] = msgspec.json.decode(as_object(arguments))
    return value


def check_surfaces_agree(said: dict[str, Said]) -> None:
    """Law 3: the same message on every surface: text, reasoning, calls with their ids and arguments, end and usage.
    Completions know no parts: there reasoning is text, and calls are left out."""
    chat = said["chat"]
    for name in ("responses", "messages"):
        for field, one, other in differences(chat, said[name]):
            raise Broken(f"{field}: chat says {one!r}, {name} {other!r}")
    if any(not call.id for call in chat.calls) or len({call.id for call in chat.calls}) < len(chat.calls):
        raise Broken(f"calls without an id of their own: {chat.calls!r}")
    raw = said["completions"]
    end = "stop" if chat.end == "tool_calls" else chat.end
    if (raw.end, raw.usage, len(raw.text)) != (end, chat.usage, len(chat.text) + len(chat.reasoning)):
        raise Broken(f"chat says {chat!r}, completions {raw!r}")


def check_conservation(deltas: Sequence[Delta], tokens: Sequence[int], text: str | None) -> None:
    """Law 4: all ids of the answer are told once, in order, and (``text`` given) the text is that of the tokens."""
    ids = [token for delta in deltas for token in getattr(delta, "token_ids", ())]
    if ids != list(tokens[: len(ids)]):
        raise Broken("the ids of the deltas are not those of the tokens")
    last = deltas[-1]
    if isinstance(last, Finish) and last.usage.completion_tokens != len(ids):
        raise Broken(f"{len(ids)} ids, but {last.usage.completion_tokens} tokens in the usage")
    shown = "".join(delta.text for delta in deltas if isinstance(delta, Content | Reasoning))
    if text is not None and shown != text:
        raise Broken(f"the text is {shown!r}, its tokens say {text!r}")
