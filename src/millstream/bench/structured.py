"""What structured output costs: the same prompts with and without a JSON schema, in turns, as shares of each other."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from millstream.bench.engine import submit
from millstream.bench.errors import BenchError
from millstream.engine.core import EngineCore

STREAMS = 16
NEW_TOKENS = 96
CONTEXT = 512
"""Positions that a stream needs at most."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"},
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 60},
                "email": {"type": "string", "format": "email"},
                "address": {
                    "type": "object",
                    "properties": {
                        "street": {"type": "string", "maxLength": 80},
                        "city": {"type": "string", "maxLength": 40},
                        "country": {"enum": ["AT", "BE", "CH", "DE", "ES", "FR", "IT", "NL", "PL", "PT"]},
                    },
                    "required": ["street", "city", "country"],
                    "additionalProperties": False,
                },
            },
            "required": ["name", "email", "address"],
            "additionalProperties": False,
        },
        "items": {
            "type": "array",
            "minItems": 40,
            "items": {
                "type": "object",
                "properties": {
                    "identifier": {"type": "integer", "minimum": 1, "maximum": 99999},
                    "description": {"type": "string", "maxLength": 40},
                    "category": {"enum": ["hardware", "software", "service", "consumable"]},
                    "unit_price": {"type": "number", "minimum": 0},
                    "available": {"type": "boolean"},
                },
                "required": ["identifier", "description", "category", "unit_price", "available"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["order", "customer", "items"],
    "additionalProperties": False,
}
"""An order with many items: longer than what is generated, so that no answer ends early."""

_PROMPT = "Order number {number} of a shop that sells {goods}, as JSON with the customer and forty items:\n"
_GOODS = ("garden tools", "books", "computer parts", "kitchen ware")


class Rate(NamedTuple):
    """Tokens per second of the clock and of processor time, and the share of tokens that were forced."""

    wall: float
    processor: float
    forced: float


class Structured(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of each round. ``free``: without a grammar; ``held``: with one; ``sampled``: with one, every token sampled
    although the grammar leaves no choice about some."""

    streams: int
    new_tokens: int
    free: list[Rate]
    held: list[Rate]
    sampled: list[Rate]

    def shares(self, rates: list[Rate]) -> tuple[float, float]:
        """Median of ``rates`` as shares of ``free`` in the same round: by the clock, by processor time."""
        pairs = list(zip(rates, self.free, strict=True))
        return (
            statistics.median(rate.wall / free.wall for rate, free in pairs),
            statistics.median(rate.processor / free.processor for rate, free in pairs),
        )


def measure_structured(core: EngineCore, path: Path, *, rounds: int, new_tokens: int = NEW_TOKENS) -> Structured | None:
    """Run ``rounds`` rounds on an engine that has room for `STREAMS` streams of `CONTEXT` positions. None: no grammar
    can hold, as the model has no token that ends a text.

    Raises:
        BenchError: the engine refuses a stream.
    """
    from millstream.models.gguf import GGUFFile
    from millstream.models.tokenizer import GGUFTokenizer
    from millstream.parsing.reasoning.format import NONE
    from millstream.pipeline.grammar import compose, json_rule

    with GGUFFile(path) as file:
        tokenizer = GGUFTokenizer(file)
    if not tokenizer.eos_ids:
        return None
    texts = [_PROMPT.format(number=number, goods=_GOODS[number % len(_GOODS)]) for number in range(STREAMS)]
    prompts = [tokenizer.encode(text)[: CONTEXT - new_tokens] for text in texts]
    grammar = compose(None, json_rule(SCHEMA), NONE, "none", {})
    _decode(core, prompts, new_tokens=8, grammar=grammar)
    found: dict[str, list[Rate]] = {"free": [], "held": [], "sampled": []}
    for _ in range(rounds):
        found["free"].append(_decode(core, prompts, new_tokens=new_tokens))
        found["held"].append(_decode(core, prompts, new_tokens=new_tokens, grammar=grammar, speculation=True))
        found["sampled"].append(_decode(core, prompts, new_tokens=new_tokens, grammar=grammar))
    return Structured(streams=STREAMS, new_tokens=new_tokens, **found)


def _decode(
    core: EngineCore,
    prompts: list[list[int]],
    *,
    new_tokens: int,
    grammar: str | None = None,
    speculation: bool = False,
) -> Rate:
    """Decode all prompts together; measured from when each has its first token."""
    waiting = {submit(core, prompt, new_tokens, grammar=grammar, speculation=speculation) for prompt in prompts}
    tokens = forced = 0
    wall = processor = 0.0
    while core.has_work:
        deltas = core.step()
        if refused := next((delta.error for delta in deltas if delta.error is not None), None):
            raise BenchError(f"the engine refused a stream: {refused}")
        if not waiting:
            tokens += sum(len(delta.tokens) for delta in deltas)
            continue
        waiting -= {delta.id for delta in deltas if delta.tokens}
        if not waiting:
            wall, processor, forced = time.perf_counter(), time.process_time(), core.stats().forced_tokens
    if not tokens:
        raise BenchError("the engine stopped before every stream had two tokens")
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return Rate(tokens / wall, tokens / processor, (core.stats().forced_tokens - forced) / tokens)
