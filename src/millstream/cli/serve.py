"""`serve`: models behind HTTP, from the command line to the last drained request."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.fetching import fetch_shown, find_file
from millstream.cli.opening import Hosted, LocalOpener, open_hosted
from millstream.cli.options import EngineOptions, Formats, JournalOptions, ServerOptions, TelemetryOptions
from millstream.cli.terminal import styled
from millstream.engine.protocol import EngineInfo, Pooling
from millstream.engine.sizing import available_memory
from millstream.hosting.opening import ModelLoadError, ModelSource
from millstream.keys.file import KeyFile, KeyFileError, default_keys_path
from millstream.keys.ring import Keyring
from millstream.models.catalogue import CatalogueModel, ModelUnavailable, model_folder
from millstream.models.shelf import name_of
from millstream.server.binding import bind
from millstream.server.origins import is_loopback
from millstream.server.process import run, settle
from millstream.server.telemetry.logs import LogRing, set_up_logging

if TYPE_CHECKING:
    from millstream.journal.writer import Journal


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``model_names``: what clients call the models, in their order. ``allow_origins``: web pages of which origins may
    call. ``allow_hosts``: names under which a server on a loopback address may be called.
    ``pooling``: how embeddings are made. ``journal`` None: nothing is recorded."""

    host: str
    port: int
    model_names: tuple[str, ...]
    telemetry: TelemetryOptions
    fetch: bool
    allow_origins: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    formats: Formats
    pooling: Pooling | None
    server: ServerOptions
    engine: EngineOptions
    journal: JournalOptions | None = None


def serve_models(refs: Sequence[str | None], options: ServeOptions) -> None:
    """Serve until Ctrl-C or SIGTERM, then finish the open requests. ``refs``: files or names, the default model first.

    The address is taken before a model is loaded, so that a taken port is known at once; what is here already is
    checked before the rest is fetched.

    Raises:
        CliError: keys that cannot be read, no such model, a file that cannot be served, models that do not fit into the
            memory together, an address that cannot be had, or engines that died and cannot be started again.
    """
    told = options.telemetry
    logs = set_up_logging(told.log_level, told.log_format, sys.stderr, prompts=told.log_prompts)
    guarded = _has_keys(options.server)
    sources, missing = _sources(refs, options)
    if missing:
        _fetch(missing, sources, options)
    sock = _listening(options)
    if not guarded and not is_loopback(sock.getsockname()[0]):
        _warn(f"listening on {options.host} without keys: whoever reaches it may use it. {_MAKE_KEYS}")
    elif not guarded and options.server.keys_file is not None:
        _warn(f"{options.server.keys_file} is not there: requests need no key. {_MAKE_KEYS}")
    with sock:
        run(_serve(sources, sock, options, logs))


def _listening(options: ServeOptions) -> socket.socket:
    try:
        return bind(options.host, options.port)
    except (OSError, UnicodeError) as error:
        raise CliError(_cannot_listen(error, options.host)) from None


def _cannot_listen(error: OSError | UnicodeError, host: str) -> str:
    told = getattr(error, "strerror", None) or f"Cannot listen on {host}: {error}"
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        told += "; serve with another --port (0 picks a free one), or see with `millstream doctor` who has this one"
    return told


_MAKE_KEYS = "Make one with `millstream keys create NAME`, or set MILLSTREAM_API_KEY; a running server sees the former."


def _has_keys(options: ServerOptions) -> bool:
    """Whether requests will need a key. Raises `CliError`: the file of keys cannot be read."""
    try:
        keys_file = KeyFile(options.keys_file or default_keys_path())
        return Keyring(keys_file, single=options.api_key).guarded
    except KeyFileError as error:
        raise CliError(str(error)) from None


def _warn(text: str) -> None:
    print(f"{styled('warning:', '1;33', sys.stderr)} {text}", file=sys.stderr, flush=True)


def _sources(refs: Sequence[str | None], options: ServeOptions) -> tuple[list[ModelSource], dict[Path, CatalogueModel]]:
    """The files, each with a name of its own, and those of them that are still to be fetched."""
    missing: dict[Path, CatalogueModel] = {}

    def later(model: CatalogueModel) -> Path:
        path = model_folder() / model.filename
        missing[path] = model
        return path

    if len(options.model_names) > len(refs):
        raise CliError(f"--model-name is given {len(options.model_names)} times for {len(refs)} models")
    paths = [find_file(ref, later if options.fetch else None) for ref in refs]
    names = [*options.model_names, *(name_of(path) for path in paths[len(options.model_names) :])]
    for name in names:
        if names.count(name) > 1:
            raise CliError(f"two models would be called {name!r}; give each a --model-name")
    return [ModelSource(name, path) for name, path in zip(names, paths, strict=True)], missing


def _fetch(missing: Mapping[Path, CatalogueModel], sources: Sequence[ModelSource], options: ServeOptions) -> None:
    """Bring what is not here, unless it is clear by now that the server would not start."""
    from millstream.cli.operating import tracing_of

    opener = LocalOpener(options.engine)
    for source in sources:
        if source.path not in missing:
            try:
                opener.check(source, available_memory())
            except ModelLoadError as error:
                raise CliError(f"{source.name}: {error}") from None
    _listening(options).close()
    if options.journal is not None:
        _open_journal(options.journal).close()
    if (tracing := tracing_of(options.telemetry)) is not None:
        tracing.close()
    for model in missing.values():
        try:
            fetch_shown(model)
        except ModelUnavailable as error:
            raise CliError(str(error)) from None


async def _serve(sources: list[ModelSource], sock: socket.socket, options: ServeOptions, logs: LogRing) -> None:
    opener = LocalOpener(
        options.engine, formats=options.formats, pooling=options.pooling, recorded=options.journal is not None
    )
    async with AsyncExitStack() as stack:
        journal = _open_journal(options.journal) if options.journal is not None else None
        if journal is not None:
            stack.callback(journal.close)
        opening = asyncio.create_task(stack.enter_async_context(open_hosted(sources, opener)))
        try:
            await asyncio.to_thread(_import_server)
            from millstream.cli.compose import open_server
            from millstream.cli.operating import operator_of
            from millstream.server.loading import LoadingServer

            async with LoadingServer(sock):
                hosted = await opening
        except BaseException:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            raise
        server = open_server(
            hosted,
            sock,
            options.server,
            allow_origins=options.allow_origins,
            allow_hosts=options.allow_hosts,
            access_log=options.telemetry.log_level in ("info", "debug"),
            operator=stack.enter_context(operator_of(options.telemetry, logs)),
            on_ready=lambda: _ready(hosted, sock),
            journal=journal,
        )
        lost = hosted.host.lost
        lost.add_done_callback(lambda _: server.stop())
        await server.run()
        if lost.done():
            raise CliError(lost.result())


def _import_server() -> None:
    """Of what is imported, most is the web framework and the API; it is, in a thread, while the engine loads."""
    import millstream.cli.compose
    import millstream.cli.operating
    import millstream.server.loading  # noqa: F401


def _open_journal(options: JournalOptions) -> Journal:
    from millstream.journal.writer import Journal

    try:
        return Journal(options.folder, limit=options.limit)
    except OSError as error:
        raise CliError(f"cannot write a journal in {options.folder}: {error.strerror}") from None


def _ready(hosted: Hosted, sock: socket.socket) -> None:
    engines = [(engine.model, engine.info) for engine in hosted.host.engines() if engine.info is not None]
    if engines:  # else all were lost meanwhile, and the server ends
        with suppress(OSError):  # a full disk below its log does not end a server
            print(_ready_line(engines, url_of(sock)), flush=True)
    settle()


def _ready_line(engines: list[tuple[str, EngineInfo]], url: str) -> str:
    (name, info), *others = engines
    line = f"{styled('ready:', '1;32', sys.stdout)} {name} on {url} ({_facts(info)})"
    return "; also ".join([line, *(f"{name} ({_facts(info)})" for name, info in others)])


def _facts(info: EngineInfo) -> str:
    kv_type = f" in {info.kv_type}" if info.kv_type != "f16" else ""
    activations = f", activations in {info.activations}" if info.activations != "int12" else ""
    return (
        f"{info.isa}, {info.threads} threads, context {info.context_length}, "
        f"KV cache {info.kv_tokens} tokens{kv_type}{activations}"
    )


def url_of(sock: socket.socket) -> str:
    """The address as clients on this machine write it."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
