"""The models that are served: a provider that gives each request to the model it names, and the life of those models.

The default model is the first that was loaded. It stays the default when its engine is lost, so that a server which
cannot do what it was started for is not ready; when it is unloaded, the next takes its place.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

from millstream.engine.memory import still_to_take
from millstream.engine.protocol import EngineInfo, EngineStats, SequenceView
from millstream.engine.sizing import available_memory
from millstream.hosting.opening import ModelLoadError, ModelProvider, ModelSource, Opener
from millstream.hosting.served import Served
from millstream.ir.errors import ApiError, engine_lost, model_loading, model_not_found, no_model
from millstream.ir.memory import give_back_pages
from millstream.ir.provider import DeltaStream, Embeddings, ModelCard
from millstream.ir.request import ChatRequest, EmbeddingRequest, Request
from millstream.ir.threads import beside

log = logging.getLogger("millstream.hosting")

_STOPPED = "The model was unloaded while it answered."


class Failure(NamedTuple):
    """Why a model does not answer. ``lost``: it did, until its engine ended for good."""

    reason: str
    lost: bool = False


class ModelHost:
    """A provider, and the engines behind it. Used from one event loop.

    ``lost`` resolves to the reason when an engine is lost for good and no other model is left or being loaded.
    """

    def __init__(
        self, opener: Opener, *, drain_seconds: float = 30.0, free_memory: Callable[[], int] = available_memory
    ) -> None:
        """``drain_seconds``: open requests of a model that is unloaded may finish within. ``free_memory``: bytes."""
        self._opener = opener
        self._drain_seconds = drain_seconds
        self._free_memory = free_memory
        self._served: dict[str, Served] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._unloading: dict[str, Served] = {}
        self._failed: dict[str, Failure] = {}
        self._default: str | None = None
        self._loads = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # What answers requests.

    def models(self) -> list[ModelCard]:
        """Those that take requests, the default first."""
        return [card for served in self._in_order() for card in served.provider.models()]

    async def stream(self, request: Request) -> DeltaStream:
        """See `millstream.ir.provider.Provider`."""
        return await self._named(request.model).stream(request)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """See `millstream.ir.provider.EmbeddingProvider`."""
        with self._named(request.model).busy() as provider:
            return await provider.embed(request)

    async def render(self, request: ChatRequest) -> str:
        """See `millstream.ir.provider.PromptTools`, as for those that follow."""
        with self._named(request.model).busy() as provider:
            return await provider.render(request)

    async def prompt_tokens(self, request: ChatRequest) -> Sequence[int]:
        with self._named(request.model).busy() as provider:
            return await provider.prompt_tokens(request)

    async def tokenize(self, text: str, *, model: str | None = None, add_special: bool = True) -> Sequence[int]:
        with self._named(model).busy() as provider:
            return await provider.tokenize(text, model=model, add_special=add_special)

    async def detokenize(self, tokens: Sequence[int], *, model: str | None = None) -> str:
        with self._named(model).busy() as provider:
            return await provider.detokenize(tokens, model=model)

    async def sequences(self) -> Mapping[str, Sequence[SequenceView]]:
        """See `millstream.hosting.opening.ModelProvider`, as for those that follow: of all models."""
        told = await asyncio.gather(*(served.provider.sequences() for served in self._all()), return_exceptions=True)
        found: dict[str, Sequence[SequenceView]] = {}
        for views in told:
            if not isinstance(views, BaseException):
                found.update(views)  # a request is one model's
            elif not isinstance(views, ApiError):
                raise views
        return found

    async def hold(self, handle: str) -> bool:
        return await self._any(lambda provider: provider.hold(handle))

    async def release(self, handle: str) -> bool:
        return await self._any(lambda provider: provider.release(handle))

    async def reprioritise(self, handle: str, priority: int) -> bool:
        return await self._any(lambda provider: provider.reprioritise(handle, priority))

    def _all(self) -> list[Served]:
        """Those that answer requests, or still do."""
        return [*self._served.values(), *self._unloading.values()]

    async def _any(self, command: Callable[[ModelProvider], Awaitable[bool]]) -> bool:
        for served in self._all():
            if await command(served.provider):
                return True
        return False

    def _named(self, name: str | None) -> Served:
        """The model of a request; None: the first. Raises `ApiError`."""
        if name is None:
            return next(iter(self._in_order()), None) or self._refuse_all()
        return self._served.get(name) or self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        if name in self._loading:
            raise model_loading(name)
        if name in self._failed:
            raise engine_lost(f"The model {name!r} does not answer: {self._failed[name].reason}")
        raise model_not_found(name, [served.model for served in self._in_order()])

    def _refuse_all(self) -> NoReturn:
        if self._default in self._failed:
            self._refuse(self._default)
        raise no_model()

    def _in_order(self) -> list[Served]:
        first = self._served.get(self._default) if self._default is not None else None
        others = (served for served in self._served.values() if served is not first)
        return [first, *others] if first is not None else list(others)

    # What is told about them.

    @property
    def default(self) -> str | None:
        """The model that readiness is about, and the first of all lists; None: there is none."""
        return self._default

    def engines(self) -> list[Served | LostEngine]:
        """The engines, that of the default model first: those that answer, those that end, those that were lost."""
        lost = [LostEngine(name, failure.reason) for name, failure in self._failed.items() if failure.lost]
        found: list[Served | LostEngine] = [*self._in_order(), *self._unloading.values(), *lost]
        return sorted(found, key=lambda engine: engine.model != self._default)

    def served(self, name: str) -> Served | None:
        """A model that takes requests, or still answers some while it is being unloaded."""
        return self._served.get(name) or self._unloading.get(name)

    def is_loading(self, name: str) -> bool:
        return name in self._loading

    def is_unloading(self, name: str) -> bool:
        return name in self._unloading

    def failure(self, name: str) -> Failure | None:
        """Why a model does not answer, if it should."""
        return self._failed.get(name)

    def names(self) -> list[str]:
        """Of all that is served, being loaded or unloaded, or failed."""
        default = () if self._default is None else (self._default,)
        return list(dict.fromkeys((*default, *self._served, *self._loading, *self._unloading, *self._failed)))

    # What changes them.

    async def check(self, source: ModelSource) -> None:
        """Raises `ModelLoadError` if a model could not be loaded now."""
        await asyncio.to_thread(self._opener.check, source, self._room())

    def load(self, source: ModelSource) -> None:
        """Begin to load a model; one is loaded at a time. Nothing happens if it is served or being loaded."""
        if (task := self._begin(source)) is not None:
            task.add_done_callback(lambda _: self._log_failure(source.name))

    async def open(self, source: ModelSource) -> None:
        """Load a model and wait for it.

        Raises:
            ModelLoadError: it cannot be loaded.
        """
        self._begin(source)
        if task := self._loading.get(source.name):
            await asyncio.shield(task)
        if failure := self._failed.get(source.name):
            raise ModelLoadError(failure.reason)

    def unload(self, name: str) -> None:
        """Begin to end a model: it takes no new requests, and its process ends after the open ones. One that failed is
        forgotten. Nothing happens if there is no such model."""
        self._failed.pop(name, None)
        if (task := self._loading.pop(name, None)) is not None:
            task.cancel()
        if (served := self._served.pop(name, None)) is not None:
            served.leaving = True
            self._unloading[name] = served
            self._spawn(self._unload(served))
        if self._default == name:
            self._default = next(iter(self._served), None)

    async def close(self) -> None:
        """End all models. Open requests end with an error."""
        engines = [served.engine for served in (*self._served.values(), *self._unloading.values())]
        self._served.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(engine.close() for engine in engines), *self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _room(self) -> int:
        """Bytes of memory that nobody has or was promised."""
        engines = [served.engine for served in (*self._served.values(), *self._unloading.values())]
        return max(0, self._free_memory() - sum(still_to_take(engine.info, engine.pid) for engine in engines))

    def _begin(self, source: ModelSource) -> asyncio.Task[None] | None:
        """Begin to load a model; None if there is nothing to do."""
        name = source.name
        if name in self._served or name in self._loading or name in self._unloading:
            return None
        self._failed.pop(name, None)
        task = self._loading[name] = self._spawn(self._load(source))
        task.add_done_callback(partial(self._loaded, name))
        return task

    def _loaded(self, name: str, task: asyncio.Task[None]) -> None:
        if self._loading.get(name) is task:  # else it was stopped, and the model may be loaded anew by now
            del self._loading[name]

    async def _load(self, source: ModelSource) -> None:
        name = source.name
        try:
            async with self._loads:
                opened = await self._opener.open(source, self._room())
            self._served[name] = Served(source, opened)
            # Not with the model itself: a circle would keep its tokenizer in memory after it is unloaded.
            opened.engine.lost.add_done_callback(partial(self._on_lost, name))
            if self._default is None:
                self._default = name
            log.info("The model %s is loaded.", name)
        except ModelLoadError as error:
            self._failed[name] = Failure(str(error))
        except Exception:
            log.exception("Loading the model %s failed.", name)
            self._failed[name] = Failure("internal error; the log has the cause")

    def _log_failure(self, name: str) -> None:
        if (failure := self._failed.get(name)) is not None:
            log.error("The model %s cannot be loaded: %s", name, failure.reason)

    async def _unload(self, served: Served) -> None:
        if not await served.idle(self._drain_seconds):
            log.warning("The model %s is unloaded with %d requests open.", served.model, served.open_requests)
        await served.engine.close(_STOPPED)
        del self._unloading[served.model]
        log.info("The model %s is unloaded.", served.model)
        del served
        # The few circles that an engine leaves lie between the objects of its tokenizer, whose pages they would keep.
        gc.collect()
        await beside(give_back_pages)

    def _on_lost(self, name: str, lost: asyncio.Future[str]) -> None:
        """An engine has ended for good."""
        served = self._served.get(name)
        if lost.cancelled() or served is None or served.engine.lost is not lost:
            return  # it is being unloaded, or was
        del self._served[name]
        self._failed[name] = Failure(lost.result(), lost=True)
        self._spawn(served.engine.close())
        if not self._served and not self._loading and not self.lost.done():
            self.lost.set_result(lost.result())


class LostEngine(NamedTuple):
    """An engine that there was."""

    model: str
    reason: str
    info: EngineInfo | None = None
    pid: int = 0
    leaving: bool = False

    async def stats(self) -> EngineStats:
        """Raises `ApiError`: why there is none."""
        raise engine_lost(self.reason)
