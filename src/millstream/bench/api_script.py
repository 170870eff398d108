"""What the benchmark of the API says and expects: a vocabulary without a model, and one text for each stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.engine.protocol import EngineInfo, TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step
from millstream.ir.errors import invalid
from millstream.ir.request import Message, Tool
from millstream.pipeline.local import LocalProvider

MODEL = "scripted"
_CHARACTERS = 128
_WORDS = tuple(f" {stem}{number}" for number in range(64) for stem in ("word", "to", "é", '"q', "longer-word-", "\n"))
_END = _CHARACTERS + len(_WORDS)
_PROMPT = re.compile(r"stream (\d+) tokens (\d+)")


def prompt_of(stream: int, tokens: int) -> str:
    """The prompt that asks for ``tokens`` tokens of the text number ``stream``."""
    return f"stream {stream} tokens {tokens}"


def text_of(stream: int, tokens: int) -> str:
    """What that prompt is answered with; neighbouring streams differ from the first token on."""
    return "".join(_WORDS[(7 * stream + index) % len(_WORDS)] for index in range(tokens))


class WordTokenizer:
    """ASCII characters one by one for prompts, whole words for answers."""

    vocab_size = _END + 1
    eos_ids = frozenset({_END})
    bos_id = None

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        return [min(ord(character), _CHARACTERS - 1) for character in text]

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < _CHARACTERS:
            return bytes([token_id])
        return _WORDS[token_id - _CHARACTERS].encode() if token_id < _END else b"<end>"

    def is_special(self, token_id: int) -> bool:
        return token_id == _END


class PlainTemplate:
    """The messages, one a line."""

    source = "plain"

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        return "\n".join(message.content for message in messages)


def scripted_provider() -> tuple[LocalProvider, ScriptedEngine]:
    """A provider that answers every `prompt_of` with its `text_of`, one token a step, and its engine.

    All streams advance together, one token each per turn of the event loop, as with an engine that sends one message
    per step.
    """
    info = EngineInfo(
        model=MODEL, context_length=65536, vocab_size=_END + 1, kv_tokens=1 << 24, block_size=32, isa="none", threads=0
    )
    engine = ScriptedEngine(_plan, info=info)
    tokenizer, template = WordTokenizer(), PlainTemplate()
    return LocalProvider(engine, tokenizer=tokenizer, template=template, name=MODEL, reasoning_format="none"), engine


def _plan(request: TokenRequest) -> Iterator[Step]:
    asked = _PROMPT.search("".join(map(chr, request.prompt)))
    if asked is None:
        raise invalid("The scripted model answers 'stream K tokens N' only.")
    return _steps(request.id, int(asked[1]), int(asked[2]))


def _steps(identity: str, stream: int, tokens: int) -> Iterator[Step]:
    turn = Pause(0)
    for index in range(tokens):
        yield turn
        yield TokenDelta(identity, [_CHARACTERS + (7 * stream + index) % len(_WORDS)])
    yield turn
    yield TokenDelta(identity, [_END], finish="stop")
