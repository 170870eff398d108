"""`replay`: recorded sequences run again, on an engine here or by a server, and compared token by token."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from millstream.cli.errors import CliError
from millstream.cli.http import Client
from millstream.cli.opening import open_local
from millstream.cli.options import EngineOptions
from millstream.cli.terminal import note
from millstream.engine.config import Activations, KvType
from millstream.engine.protocol import TokenEngine, TokenFinish, TokenRequest
from millstream.ir.errors import ApiError
from millstream.journal.compare import Difference, Rerun, difference, request_again
from millstream.journal.records import ModelFacts, Record, Sequence
from millstream.journal.writer import Digests

_Numbers = tuple[ModelFacts, KvType, Activations]
"""What decides which numbers an engine computes."""

_AT_ONCE = 8
"""Sequences that are run beside each other: the answers must not depend on it."""


class Outcome(NamedTuple):
    """What came of one recorded sequence. ``skipped``: why it cannot be compared; then there is no difference."""

    record: Record
    choice: int
    tokens: int
    difference: Difference | None = None
    skipped: str | None = None


class CannotRun(Exception):
    """A sequence that whoever runs it cannot be asked for; the message says why."""


class Runner(Protocol):
    """Runs sequences again."""

    async def run(self, request: TokenRequest) -> Rerun:
        """Raises `CannotRun`, or `CliError` if nothing can be run."""
        ...


def replay(records: list[Record], *, model: Path | None, url: str | None, key: str | None) -> list[Outcome]:
    """Run every sequence of these records again; the outcomes are in order.

    ``url``: the server to ask; None: an engine here, on the file ``model`` or on the recorded one.

    Raises:
        CliError: the model is not there or not the recorded one, or nothing can be run.
    """
    if url is not None:
        return asyncio.run(_replay_with(_ServerRunner(Client(url, key=key)), records))
    outcomes: list[Outcome] = []
    for (facts, kv_type, activations), group in _by_model(records):
        options = EngineOptions(
            context_length=max(record.engine.context_length for record in group if record.engine is not None),
            kv_type=kv_type,
            activations=activations,
            max_sequences=_AT_ONCE,
            max_queue=4 * _AT_ONCE,
        )
        outcomes += asyncio.run(_replay_here(_model_path(facts, model), options, group))
    order = {id(record): place for place, record in enumerate(records)}
    return sorted(outcomes, key=lambda outcome: order[id(outcome.record)])


def _by_model(records: Iterable[Record]) -> Iterator[tuple[_Numbers, list[Record]]]:
    groups: dict[_Numbers, list[Record]] = {}
    for record in records:
        if record.model is not None and record.engine is not None:
            numbers = (record.model, record.engine.kv_type, record.engine.activations)
            groups.setdefault(numbers, []).append(record)
    yield from groups.items()


def _model_path(facts: ModelFacts, given: Path | None) -> Path:
    path = given or Path(facts.file)
    try:
        there = path.is_file()
    except OSError:  # such as a name that is too long to be one
        there = False
    if not there:
        raise CliError(f"{str(path)[:200]} is not there any more; give the file of {facts.name} with --model")
    found = Digests().facts(facts.name, path)
    if found.sha256 != facts.sha256:
        message = f"{path} is not the file that was recorded (SHA-256 {found.sha256[:12]}…, was {facts.sha256[:12]}…)"
        if given is None:
            raise CliError(f"{message}; give the right one with --model")
        note(f"warning: {message}, so differences are to be expected")
    return path


async def _replay_here(path: Path, options: EngineOptions, records: list[Record]) -> list[Outcome]:
    async with open_local(path, options) as session:
        return await _replay_with(_EngineRunner(session.engine), records)


async def _replay_with(runner: Runner, records: list[Record]) -> list[Outcome]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(record: Record, sequence: Sequence) -> Outcome:
        async with places:
            return await _outcome(runner, record, sequence)

    return await asyncio.gather(*(one(record, sequence) for record in records for sequence in record.sequences))


async def _outcome(runner: Runner, record: Record, sequence: Sequence) -> Outcome:
    choice, count = sequence.choice, len(sequence.tokens)
    try:
        request = request_again(sequence)
        if request is None:
            return Outcome(record, choice, count, skipped="it ended before its first token")
        again = await runner.run(request)
    except (ValueError, CannotRun) as error:
        return Outcome(record, choice, count, skipped=str(error))
    return Outcome(record, choice, count, difference(sequence, again))


class _EngineRunner:
    """An engine here gets exactly what the recorded one got."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine

    async def run(self, request: TokenRequest) -> Rerun:
        """See `Runner.run`."""
        try:
            stream = await self._engine.submit(replace(request, id=uuid.uuid4().hex, tenant="", priority=0))
        except ApiError as error:
            raise CannotRun(error.message) from None
        tokens: list[int] = []
        finish: TokenFinish | None = None
        failure: str | None = None
        digest: str | None = None
        async for delta in stream:
            tokens += delta.tokens
            if delta.finish is not None:
                finish, failure = delta.finish, delta.error
            if delta.embedding is not None:
                digest = hashlib.sha256(delta.embedding).hexdigest()
        return Rerun(tokens, finish, failure, digest)


class _ServerRunner:
    """A server is asked for a completion of the recorded prompt's ids, which leaves nothing to its templates."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._model: str | None = None

    async def run(self, request: TokenRequest) -> Rerun:
        """See `Runner.run`."""
        if request.grammar is not None or request.thinking is not None:
            raise CannotRun("structured output and reasoning budgets can only be replayed with a model file")
        if request.only_read:
            raise CannotRun("what generates no text can only be replayed with a model file")
        if self._model is None:
            self._model = str((await asyncio.to_thread(self._client.get, "/v1/models"))["data"][0]["id"])
        answer = await asyncio.to_thread(self._client.post, "/v1/completions", completion_body(request, self._model))
        try:
            choice = answer["choices"][request.choice]
            return Rerun(choice["token_ids"], choice["finish_reason"])
        except (KeyError, IndexError, TypeError):
            raise CliError(f"{self._client.url} does not tell token ids; is it a Millstream server?") from None


def completion_body(request: TokenRequest, model: str) -> dict[str, Any]:
    """The completion request that makes a server ask its engine for this sequence."""
    sampling = request.sampling
    return {
        "model": model,
        "prompt": request.prompt,
        "n": request.choice + 1,  # the random numbers of a choice depend on its number
        "max_tokens": request.max_tokens,
        "min_tokens": request.min_tokens,
        "stop_token_ids": list(request.stop_ids),
        "ignore_eos": True,  # the recorded stop ids hold it, if it counted
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()},
        "seed": sampling.seed - (1 << 64) if sampling.seed >= 1 << 63 else sampling.seed,
        "return_token_ids": True,
    }
