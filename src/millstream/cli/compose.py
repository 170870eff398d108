"""The composition root: the only module that knows how engine, pipeline and server are put together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.options import EngineOptions, Formats, ServerOptions
from millstream.engine.client import EngineProcess, EngineStartError
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import Pooling
from millstream.engine.restarts import Supervision
from millstream.engine.sizing import kv_bytes_per_token
from millstream.models.assets import open_model
from millstream.models.catalogue import CATALOGUE
from millstream.models.errors import ModelFileError
from millstream.models.loader import load_model_file
from millstream.pipeline.local import LocalProvider

if TYPE_CHECKING:
    from millstream.server.run import HttpServer

_KV_ROUNDING = 64
"""A KV cache asked for in tokens is rounded up to a multiple of this: of whole pages, whatever their size is."""


class LocalSession(NamedTuple):
    """A loaded model: ``provider`` answers requests, ``name`` is what they call the model."""

    name: str
    provider: LocalProvider
    engine: EngineProcess


@asynccontextmanager
async def open_local(
    path: Path,
    options: EngineOptions,
    *,
    name: str | None = None,
    formats: Formats = Formats(),  # noqa: B008  (immutable)
    pooling: Pooling | None = None,
) -> AsyncIterator[LocalSession]:
    """Start an engine process on a model file; it is stopped on exit. ``pooling`` None: as the file says, else mean.

    The file is checked first, so that a bad one starts nothing; then the engine loads the weights while this process
    builds the tokenizer.

    Raises:
        CliError: the file cannot be served, or the engine cannot start.
    """
    name = name or model_name(path)
    try:
        config = engine_config(path, options, name=name)
        engine_start = asyncio.create_task(EngineProcess.start(config, supervision=_supervision(options)))
        try:
            assets = await asyncio.to_thread(open_model, path, name=name)
        except BaseException:
            await _discard(engine_start)
            raise
        engine = await engine_start
    except (ModelFileError, EngineStartError, OSError) as error:
        raise CliError(str(error)) from None
    try:
        provider = LocalProvider(
            engine,
            tokenizer=assets.tokenizer,
            template=assets.template,
            name=assets.name,
            tool_format=formats.tools,
            reasoning_format=formats.reasoning,
            refusals=formats.refusals,
            pooling=pooling or assets.pooling or "mean",
        )
        yield LocalSession(assets.name, provider, engine)
    finally:
        await engine.close()


def open_server(
    session: LocalSession,
    sock: socket.socket,
    options: ServerOptions,
    *,
    allow_origins: tuple[str, ...],
    allow_hosts: tuple[str, ...],
    access_log: bool,
    on_ready: Callable[[], None],
) -> HttpServer:
    """The HTTP server of a session on a bound socket; ``on_ready`` is called once it answers.

    A server that listens on a loopback address is called by loopback names and ``allow_hosts``; any other by any name.
    """
    from millstream.server.app import create_app
    from millstream.server.origins import is_loopback
    from millstream.server.run import HttpServer
    from millstream.server.settings import Settings
    from millstream.server.sqlite_store import default_store_path

    settings = Settings(
        allow_origins=allow_origins,
        allow_hosts=allow_hosts if is_loopback(sock.getsockname()[0]) else None,
        access_log=access_log,
        request_seconds=options.request_timeout,
        stall_seconds=options.stall_timeout,
        store_path=default_store_path(),
    )
    app = create_app(session.provider, session.engine.stats, settings)
    return HttpServer(app, sock, settings, on_ready=on_ready)


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


def model_name(path: Path) -> str | None:
    """The catalogue's name of a fetched model; None for any other file, which is named after itself."""
    for model in CATALOGUE:
        if path.name == model.filename:
            return model.name
    return None


def engine_config(path: Path, options: EngineOptions, *, name: str | None) -> EngineConfig:
    """The engine's settings; what the command line left open keeps the engine's own default.

    Raises:
        ModelFileError: the file holds no model that can run.
    """
    with load_model_file(path) as model:
        token_bytes = kv_bytes_per_token(model.spec, options.kv_type)
    kv_bytes: int | None = None
    if options.kv_cache is not None and options.kv_cache.tokens is not None:
        kv_bytes = token_bytes * -(-options.kv_cache.tokens // _KV_ROUNDING) * _KV_ROUNDING
    elif options.kv_cache is not None:
        kv_bytes = options.kv_cache.bytes
    config = EngineConfig(
        model_path=str(path),
        model_name=name or path.stem,
        context_length=options.context_length,
        kv_bytes=kv_bytes,
        kv_type=options.kv_type,
        threads=options.threads,
        prefix_cache=options.prefix_cache,
    )
    if options.max_sequences is not None:
        config = msgspec.structs.replace(config, max_sequences=options.max_sequences)
    if options.max_queue is not None:
        config = msgspec.structs.replace(config, max_waiting=options.max_queue)
    return config
