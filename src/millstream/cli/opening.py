"""Model files opened in engine processes of this machine, and what answers requests with them.

The engine process is the first thing that is started: while it loads the weights, this process reads the vocabulary and
imports what answers need, which takes as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.options import EngineOptions, Formats
from millstream.engine.client import EngineProcess, EngineStartError
from millstream.engine.config import EngineConfig
from millstream.engine.memory import NotEnoughMemory, memory_need, require_room
from millstream.engine.protocol import Pooling, TokenEngine
from millstream.engine.restarts import Supervision
from millstream.engine.sizing import WrongContext, available_memory, context_of, kv_bytes_per_token
from millstream.hosting.desk import ModelDesk
from millstream.hosting.host import ModelHost
from millstream.hosting.opening import ModelLoadError, ModelSource, OpenModel
from millstream.hosting.pulls import Pulls
from millstream.models.errors import ModelFileError
from millstream.models.loader import ModelFile, load_model_file
from millstream.models.shelf import name_of

if TYPE_CHECKING:
    from millstream.models.assets import ModelAssets
    from millstream.pipeline.local import LocalProvider

_KV_ROUNDING = 64
"""A KV cache asked for in tokens is rounded up to a multiple of this: of whole pages, whatever their size is."""


class LocalSession(NamedTuple):
    """A loaded model: ``provider`` answers requests, ``name`` is what they call the model."""

    name: str
    provider: LocalProvider
    engine: EngineProcess


class LocalOpener:
    """Loads model files into engine processes of this machine. ``pooling`` None: as the file says, else mean.
    ``recorded``: a journal can read along."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        formats: Formats = Formats(),  # noqa: B008  (immutable)
        pooling: Pooling | None = None,
        recorded: bool = False,
    ) -> None:
        self._recorded = recorded
        self._options = options
        self._formats = formats
        self._pooling = pooling

    def check(self, source: ModelSource, free_bytes: int) -> None:
        """See `millstream.hosting.opening.Opener`."""
        try:
            engine_config(source, self._options, free_bytes=free_bytes)
        except (ModelFileError, NotEnoughMemory, WrongContext, OSError) as error:
            raise ModelLoadError(str(error)) from None

    async def open(self, source: ModelSource, free_bytes: int) -> OpenModel:
        """See `millstream.hosting.opening.Opener`."""
        session = await self.session(source, free_bytes)
        return OpenModel(session.engine, session.provider)

    async def session(self, source: ModelSource, free_bytes: int) -> LocalSession:
        """Start an engine process on a model file.

        The file is checked first, so that a bad one starts nothing; then the engine loads the weights while this
        process builds the tokenizer.

        Raises:
            ModelLoadError: the file cannot be served, or the engine cannot start.
        """
        try:
            config = await asyncio.to_thread(engine_config, source, self._options, free_bytes=free_bytes)
            start = asyncio.create_task(EngineProcess.start(config, supervision=_supervision(self._options)))
            try:
                await asyncio.sleep(0)  # the process is begun before this one has much to do
                assets = await asyncio.to_thread(_read_assets, source)
                engine = await start
            except BaseException:
                await _discard(start)
                raise
        except (ModelFileError, NotEnoughMemory, WrongContext, EngineStartError, OSError) as error:
            raise ModelLoadError(str(error)) from None
        provider = self._provider(engine, assets, source)
        return LocalSession(assets.name, provider, engine)

    def _provider(self, engine: EngineProcess, assets: ModelAssets, source: ModelSource) -> LocalProvider:
        from millstream.pipeline.local import LocalProvider

        told: TokenEngine = engine
        if self._recorded:
            from millstream.journal.recording import RecordedEngine

            told = RecordedEngine(engine, name=assets.name, path=source.path, prefix_cache=self._options.prefix_cache)
        return LocalProvider(
            told,
            tokenizer=assets.tokenizer,
            template=assets.template,
            name=assets.name,
            tool_format=self._formats.tools,
            reasoning_format=self._formats.reasoning,
            refusals=self._formats.refusals,
            pooling=self._pooling or assets.pooling or "mean",
        )


@asynccontextmanager
async def open_local(path: Path, options: EngineOptions) -> AsyncIterator[LocalSession]:
    """A model of this process alone; its engine is stopped on exit.

    Raises:
        CliError: the file cannot be served, or the engine cannot start.
    """
    try:
        source = ModelSource(name_of(path), path)
        session = await LocalOpener(options).session(source, available_memory())
    except ModelLoadError as error:
        raise CliError(str(error)) from None
    try:
        yield session
    finally:
        await session.engine.close()


class Hosted(NamedTuple):
    """The models of a server, and what its operator does with them."""

    host: ModelHost
    desk: ModelDesk


@asynccontextmanager
async def open_hosted(sources: list[ModelSource], opener: LocalOpener) -> AsyncIterator[Hosted]:
    """Load models one after the other, the default first; whatever is loaded at the end is stopped on exit.

    Raises:
        CliError: one of them cannot be loaded.
    """
    host, pulls = ModelHost(opener), Pulls()
    desk = ModelDesk(host, pulls)
    try:
        for source in sources:
            desk.remember(source)
            try:
                await host.open(source)
            except ModelLoadError as error:
                raise CliError(f"{source.name}: {error}" if len(sources) > 1 else str(error)) from None
        yield Hosted(host, desk)
    finally:
        await pulls.close()
        await host.close()


def _read_assets(source: ModelSource) -> ModelAssets:
    """What this process needs of the file, and what it needs of Python to answer."""
    import millstream.pipeline.local  # noqa: F401  (the provider's; imported here, while the engine loads)
    from millstream.models.assets import open_model

    return open_model(source.path, name=source.name)


def _supervision(options: EngineOptions) -> Supervision:
    if options.step_deadline is None:
        return Supervision()
    return Supervision(step_deadline=options.step_deadline)


async def _discard(start: asyncio.Task[EngineProcess]) -> None:
    """Stop an engine that is no longer wanted, whether it has started yet or not."""
    start.cancel()
    (engine,) = await asyncio.gather(start, return_exceptions=True)
    if isinstance(engine, EngineProcess):
        await engine.close()


def engine_config(source: ModelSource, options: EngineOptions, *, free_bytes: int) -> EngineConfig:
    """The engine's settings; what the command line left open keeps the engine's own default.

    Raises:
        ModelFileError: the file holds no model that can run.
        WrongContext: its context is shorter than the one that is asked for.
        NotEnoughMemory: it does not fit into ``free_bytes``.
    """
    config = EngineConfig(
        model_path=str(source.path),
        model_name=source.name,
        context_length=options.context_length,
        memory_bytes=free_bytes,
        kv_type=options.kv_type,
        activations=options.activations,
        threads=options.threads,
        prefix_cache=options.prefix_cache,
    )
    if options.max_sequences is not None:
        config = msgspec.structs.replace(config, max_sequences=options.max_sequences)
    if options.max_queue is not None:
        config = msgspec.structs.replace(config, max_waiting=options.max_queue)
    with load_model_file(source.path) as model:
        context = context_of(model.spec, options.context_length)
        config = msgspec.structs.replace(config, kv_bytes=_kv_bytes(model, options))
        require_room(
            memory_need(model, max_rows=config.max_rows, kv_type=config.kv_type),
            context_length=context,
            kv_bytes=config.kv_bytes,
            free_bytes=free_bytes,
        )
    return config


def _kv_bytes(model: ModelFile, options: EngineOptions) -> int | None:
    """The size of the KV cache, if the command line says one."""
    if options.kv_cache is None or options.kv_cache.tokens is None:
        return None if options.kv_cache is None else options.kv_cache.bytes
    return kv_bytes_per_token(model.spec, options.kv_type) * -(-options.kv_cache.tokens // _KV_ROUNDING) * _KV_ROUNDING
