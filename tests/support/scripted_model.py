"""A model without weights: a byte-level vocabulary with awkward tokens, a plain template, a provider over scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from millstream.engine.protocol import EngineInfo, TokenAlternatives, TokenRequest
from millstream.engine.scripted import ScriptedEngine, script
from millstream.ir.request import ChatRequest, Message, Output, Sampling, Tool
from millstream.pipeline.local import LocalProvider

T = TypeVar("T")

PIECES: tuple[bytes, ...] = (
    *(bytes([value]) for value in range(256)),
    *(b"ab", b"ba", b"aab", b"<a", b"b>", b"<<", b"abab", b" a", b"a\n"),
    *("é".encode(), "€".encode(), "😀".encode(), "é€".encode()),
    *(b"a\xe2", b"\x82\xac<", b"\x9f\x98", b"\xe2\x82", b""),
)
SPECIALS = (b"<bos>", b"<eos>", b"<turn>", b"<think>", b"</think>")
BOS, EOS, TURN, THINK, UNTHINK = range(len(PIECES), len(PIECES) + len(SPECIALS))
VOCAB_SIZE = len(PIECES) + len(SPECIALS)


class TinyTokenizer:
    """Greedy longest match over `PIECES`; ``bos=False`` for a model that has no BOS."""

    def __init__(self, *, bos: bool = True) -> None:
        self.bos_id = BOS if bos else None
        self.vocab_size = VOCAB_SIZE
        self.eos_ids = frozenset({EOS, TURN})
        self._ids = {piece: token_id for token_id, piece in enumerate(PIECES) if piece}
        self._longest = max(len(piece) for piece in PIECES)

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        raw = text.encode()
        ids = [BOS] if add_bos and self.bos_id is not None and not raw.startswith(b"<bos>") else []
        at = 0
        while at < len(raw):
            special = next((k for k, name in enumerate(SPECIALS) if parse_special and raw.startswith(name, at)), None)
            if special is not None:
                ids.append(BOS + special)
                at += len(SPECIALS[special])
                continue
            size = next(n for n in range(self._longest, 0, -1) if raw[at : at + n] in self._ids)
            ids.append(self._ids[raw[at : at + size]])
            at += size
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return PIECES[token_id] if token_id < BOS else SPECIALS[token_id - BOS]

    def is_special(self, token_id: int) -> bool:
        return token_id >= BOS


class TinyTemplate:
    source = "tiny"

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        turns = "".join(f"{message.role}:{message.content}<turn>" for message in messages)
        return "<bos>" + turns + ("assistant:" if add_generation_prompt else "")


def alternatives(index: int) -> TokenAlternatives:
    """Made-up log probabilities that tell positions apart."""
    return TokenAlternatives(-0.5 - index, [97, 98, 0xE2], [-0.25 - index, -1.0 - index, -2.0 - index])


def info(*, context_length: int = 4096, vocab_size: int = VOCAB_SIZE) -> EngineInfo:
    return EngineInfo(
        model="tiny",
        context_length=context_length,
        vocab_size=vocab_size,
        kv_tokens=65536,
        block_size=32,
        isa="none",
        threads=0,
    )


def engine(
    tokens: Sequence[int], *, cuts: Iterable[int] | None = None, context_length: int = 4096, **how: Any
) -> ScriptedEngine:
    """An engine that answers every request with ``tokens`` in ``cuts``."""
    cuts = None if cuts is None else tuple(cuts)

    def plan(request: TokenRequest) -> Any:
        return script(request, tokens, cuts=cuts, alternatives=alternatives, **how)

    return ScriptedEngine(plan, info=info(context_length=context_length))


def provider(engine: ScriptedEngine, **how: Any) -> LocalProvider:
    """Unless asked, without reasoning: the vocabulary's think tags would hold back a ``<``."""
    how.setdefault("reasoning_format", "none")
    how.setdefault("tokenizer", TinyTokenizer())
    return LocalProvider(engine, template=TinyTemplate(), created=0, **how)


def ask(text: str = "hi", *, n: int = 1, output: Output | None = None, **sampling: Any) -> ChatRequest:
    return ChatRequest(
        model="tiny",
        messages=(Message("user", text),),
        sampling=Sampling(**sampling),
        output=output or Output(),
        n=n,
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, and fail if a task is left behind."""

    async def alone() -> T:
        result = await work
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return result

    return asyncio.run(alone())
