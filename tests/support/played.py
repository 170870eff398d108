"""A model that is played: a real tokenizer, template and pipeline, and a function that says what the model writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from millstream.engine.protocol import EngineInfo, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step, script
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.pipeline.local import LocalProvider

Writer = Callable[[str], str | Exception | None]
"""From the text of a prompt to what the model writes, markup and end of turn included. It begins and then fails (an
exception), or says nothing more (None)."""


def played(
    write: Writer,
    *,
    name: str,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    context_length: int = 32_768,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    pause: float = 0.0,
) -> tuple[LocalProvider, ScriptedEngine, list[str]]:
    """A provider, its engine and the prompts that the engine was given, in order of time.

    The answer comes token by token with ``pause`` seconds between two.
    """
    prompts: list[str] = []

    def plan(request: TokenRequest) -> Iterable[Step]:
        prompts.append(text_of(tokenizer, request.prompt))
        written = write(prompts[-1])
        if isinstance(written, str):
            return _paced(script(request, tokenizer.encode(written)), pause)
        return [*script(request, tokenizer.encode("Well"), then=None), Pause(pause), written or Pause(None)]

    info = EngineInfo(
        model=name,
        context_length=context_length,
        vocab_size=tokenizer.vocab_size,
        kv_tokens=context_length,
        block_size=32,
        isa="none",
        threads=0,
    )
    engine = ScriptedEngine(plan, info=info)
    provider = LocalProvider(
        engine,
        tokenizer=tokenizer,
        template=template,
        name=name,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
    )
    return provider, engine, prompts


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Token ids as text, control tokens by their names."""
    return b"".join(tokenizer.token_bytes(token) for token in tokens).decode("utf-8", "replace")


def _paced(steps: Iterable[Step], seconds: float) -> list[Step]:
    return [each for step in steps for each in (step, Pause(seconds))]
