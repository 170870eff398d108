"""The whole self-test of a model file: token sequences from the real engine and from the model's markers, every law."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import msgspec

from millstream.cli.opening import engine_config
from millstream.cli.options import EngineOptions
from millstream.engine.client import EngineProcess
from millstream.engine.protocol import EngineInfo, SamplingParams, TokenRequest
from millstream.engine.sizing import available_memory
from millstream.hosting.opening import ModelSource
from millstream.ir.errors import ApiError
from millstream.models.assets import ModelAssets, open_model
from millstream.models.shelf import name_of
from millstream.pipeline.dialect import Dialect
from millstream.selftest import laws
from millstream.selftest.laws import Broken, Player

PROMPTS = (
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "Répondez en français : où est l'été ? 😀",
    "List three colours of the rainbow, one a line.",
)
FRAGMENTS = (
    "<tool_call>", "</tool_call>", '{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}', "[TOOL_CALLS]",
    "<|python_tag|>", '{"name": "get_weather", "parameters": {}}', "get_weather(city='Oslo')", "[", "]", "```json\n",
    "\n```", "<think>", "</think>", "[THINK]", "[/THINK]", "Hello ", "é€😀", "<", "{", '"', "\n\n", "<tool_",
    "<function=get_weather>", "<parameter=city>", "Oslo", "</parameter>", "</function>",
)  # fmt: skip
"""Markers of tool calls and reasoning, whole and in part, and text between them."""
ANSWER_TOKENS = 40
MIXES = 40


class Result(msgspec.Struct):
    """One law: how many cases were tried, and how the first failed (None: all hold)."""

    law: str
    what: str
    cases: int = 0
    failure: str | None = None


class Report(msgspec.Struct):
    """``formats``: how the model writes tool calls and reasoning."""

    model: str
    formats: dict[str, str]
    results: list[Result]

    @property
    def ok(self) -> bool:
        return all(result.failure is None for result in self.results)


async def run_selftest(path: Path, *, threads: int = 0, seed: int = 0) -> Report:
    """Try every law. Starts and stops engine processes of its own.

    Raises:
        ModelFileError, NotEnoughMemory, EngineStartError: the model cannot be served.
    """
    name = name_of(path)
    options = EngineOptions(threads=threads, prefix_cache=False)
    config = engine_config(ModelSource(name, path), options, free_bytes=available_memory())
    config = msgspec.structs.replace(config, context_length=min(config.context_length or 512, 512))
    assets = await asyncio.to_thread(open_model, path, name=name)
    dialect = Dialect(assets.template, assets.tokenizer)
    formats = {"tools": dialect.tool_format, "reasoning": dialect.reasoning_format}
    report = Report(assets.name, formats, [])
    engine = await EngineProcess.start(config)
    try:
        info = engine.info
        answers = await _batch_laws(report, assets, engine)
    finally:
        await engine.close()
    slow = await EngineProcess.start(msgspec.structs.replace(config, step_tokens=5))
    try:
        await _try(report, "2", "batch invariance: prompts in chunks of 5 tokens", _chunked(assets, slow, answers))
    finally:
        await slow.close()
    await _stream_laws(report, assets, info, [*answers, *_mixes(assets, Random(seed))], Random(seed))
    return report


async def _batch_laws(report: Report, assets: ModelAssets, engine: EngineProcess) -> list[list[int]]:
    """The answers to the prompts, each alone; together they must be the same."""
    requests = _requests(assets)
    alone = [await _generate(engine, request) for request in requests]

    async def together() -> int:
        for round_ in range(2):
            renamed = [msgspec.structs.replace(one, id=f"{one.id}-{round_}") for one in requests]
            batched = await asyncio.gather(*(_generate(engine, request) for request in renamed))
            _same(alone, list(batched))
        return 2 * len(requests)

    await _try(report, "2", "batch invariance: alone and all together", together)
    return alone


def _chunked(assets: ModelAssets, engine: EngineProcess, alone: list[list[int]]) -> Callable[[], Awaitable[int]]:
    async def check() -> int:
        _same(alone, list(await asyncio.gather(*(_generate(engine, request) for request in _requests(assets)))))
        return len(alone)

    return check


async def _stream_laws(
    report: Report, assets: ModelAssets, info: EngineInfo, sequences: Sequence[list[int]], random: Random
) -> None:
    # What is played needs no real context, and some vocabularies make long prompts.
    player = Player(assets, msgspec.structs.replace(info, context_length=1 << 16))
    chat, raw = player.chat(), player.completion()
    played = [await player.deltas(chat, tokens, None) for tokens in sequences]

    async def one_end() -> int:
        for deltas in played:
            laws.check_one_end(deltas)
        return len(played)

    async def partition() -> int:
        count = 0
        for tokens, deltas in zip(sequences, played, strict=True):
            for cuts in laws.some_cuts(tokens, random):
                laws.check_partition(deltas, await player.deltas(chat, tokens, cuts))
                count += 1
        return count

    async def surfaces() -> int:
        for deltas in played:
            laws.check_surfaces_agree({name: laws.check_surface(name, deltas) for name in laws.WIRES})
        return len(played) * len(laws.WIRES)

    async def conservation() -> int:
        for tokens, deltas in zip(sequences, played, strict=True):
            laws.check_conservation(deltas, tokens, None)
            whole = await player.deltas(raw, tokens, None)
            laws.check_conservation(whole, tokens, player.text(tokens))
        return 2 * len(sequences)

    await _try(report, "1", "one end of every stream", one_end)
    await _try(report, "2", "partition invariance of text, reasoning and calls", partition)
    await _try(report, "3", "stream = whole answer, on every surface", surfaces)
    await _try(report, "4", "conservation of tokens and text", conservation)
    report.results.sort(key=lambda result: result.law)


async def _try(report: Report, law: str, what: str, check: Callable[[], Awaitable[int]]) -> None:
    result = Result(law, what)
    report.results.append(result)
    try:
        result.cases = await check()
    except (Broken, ApiError) as broken:
        result.failure = str(broken)[:2000]


def _requests(assets: ModelAssets) -> list[TokenRequest]:
    """One per prompt; half of them sampled, half greedy."""
    tokenizer = assets.tokenizer
    return [
        TokenRequest(
            id=f"selftest-{index}",
            prompt=tokenizer.encode(text, add_bos=True),
            sampling=SamplingParams(temperature=0.9 if index % 2 else 0.0, seed=index),
            max_tokens=ANSWER_TOKENS,
            stop_ids=tuple(sorted(tokenizer.eos_ids)),
        )
        for index, text in enumerate(PROMPTS)
    ]


async def _generate(engine: EngineProcess, request: TokenRequest) -> list[int]:
    tokens: list[int] = []
    async for delta in await engine.submit(request):
        tokens += delta.tokens
        if delta.finish == "error":
            raise Broken(f"the engine failed: {delta.error}")
    return tokens


def _same(alone: list[list[int]], other: list[list[int]]) -> None:
    for prompt, one, two in zip(PROMPTS, alone, other, strict=True):
        if one != two:
            raise Broken(f"{prompt!r}: {one} became {two}")


def _mixes(assets: ModelAssets, random: Random) -> list[list[int]]:
    """Fragments in random order as tokens, a few random tokens among them."""
    tokenizer = assets.tokenizer
    mixes = []
    for _ in range(MIXES):
        tokens: list[int] = []
        for _ in range(random.randint(1, 8)):
            tokens += tokenizer.encode(random.choice(FRAGMENTS))
            if random.random() < 0.2:
                tokens.append(random.randrange(tokenizer.vocab_size))
        mixes.append(tokens)
    return mixes
