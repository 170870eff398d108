"""A token engine that plays scripts: the engine for tests, and for work on the wire formats without a model.

    engine = ScriptedEngine(lambda request: script(request, tokens, cuts=[3, 5]))

A plan turns each request into a script; a plan that raises `ApiError` refuses the request. What was asked and what was
aborted is recorded. An operator's hold stops a sequence between two steps of its script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from millstream.engine.protocol import (
    EngineInfo,
    EngineStats,
    SequenceView,
    TokenAlternatives,
    TokenDelta,
    TokenFinish,
    TokenRequest,
    TokenStream,
)
from millstream.ir.errors import engine_failed


class Pause(msgspec.Struct, frozen=True):
    """The sequence stalls for some seconds (0: one turn of the event loop), or until it is aborted (None)."""

    seconds: float | None = 0.0


Step = TokenDelta | Pause | Exception
"""A delta to report (its id is filled in), a pause, or an exception that the stream raises."""

Plan = Callable[[TokenRequest], Iterable[Step]]


def script(
    request: TokenRequest,
    tokens: Sequence[int],
    *,
    cuts: Iterable[int] | None = None,
    then: TokenFinish | None = "stop",
    alternatives: Callable[[int], TokenAlternatives] | None = None,
    prompt_alternatives: Callable[[int], TokenAlternatives] | None = None,
    cached_tokens: int = 0,
) -> list[TokenDelta]:
    """An obedient engine's answer with ``tokens``: it ends at a stop id (``stop``) or at ``max_tokens`` (``length``),
    else with ``then`` (None: the stream just ends).

    ``cuts``: indices into ``tokens`` where a new step begins; None: one token per step. ``alternatives`` gives the
    log probabilities of token k if the request asked for them, ``prompt_alternatives`` those of token k of the prompt,
    all in the first step.
    """
    kept = list(tokens[: request.max_tokens])
    finish: TokenFinish | None = "length" if len(kept) == request.max_tokens else then
    for index, token in enumerate(kept):
        if index >= request.min_tokens and token in request.stop_ids:
            kept, finish = kept[: index + 1], "stop"
            break
    inner = range(1, len(kept)) if cuts is None else sorted({cut for cut in cuts if 0 < cut < len(kept)})
    bounds = [0, *inner, len(kept)]
    logprobs = request.sampling.logprobs is not None and alternatives is not None
    scores: list[TokenAlternatives] = []
    if request.prompt_logprobs is not None and prompt_alternatives is not None:
        scores = [prompt_alternatives(k) for k in range(request.scored + 1, len(request.prompt))]
    return [
        TokenDelta(
            id=request.id,
            tokens=kept[start:end],
            logprobs=[alternatives(k) for k in range(start, end)] if logprobs and alternatives else [],
            finish=finish if end == len(kept) else None,
            cached_tokens=cached_tokens,
            prompt_logprobs=scores if start == 0 else [],
        )
        for start, end in pairwise(bounds)
    ]


class ScriptedEngine:
    """Plays ``plan(request)`` for every request. ``requests`` and ``aborted`` (ids) are in order of time;
    ``priorities``: the present class of each open sequence."""

    def __init__(self, plan: Plan, *, info: EngineInfo | None = None) -> None:
        self._plan = plan
        self._info = info or EngineInfo(
            model="scripted", context_length=4096, vocab_size=512, kv_tokens=65536, block_size=32, isa="none", threads=0
        )
        self._streams: dict[str, _ScriptedStream] = {}
        self._closed = False
        self.requests: list[TokenRequest] = []
        self.aborted: list[str] = []
        self.priorities: dict[str, int] = {}
        self.generated = 0
        self.steps = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def submit(self, request: TokenRequest) -> TokenStream:
        """Start to play. Raises what the plan raises, and `ApiError` (503) once the engine is closed."""
        if self._closed:
            raise engine_failed("The engine is closed.")
        steps = iter(self._plan(request))
        self.requests.append(request)
        stream = self._streams[request.id] = _ScriptedStream(self, request, steps)
        self.priorities[request.id] = request.priority
        return stream

    async def stats(self) -> EngineStats:
        return EngineStats(running=len(self._streams), steps=self.steps, generated_tokens=self.generated)

    async def sequences(self) -> list[SequenceView]:
        """See `SequenceControl.sequences`, as for the methods that follow. A script has no queue."""
        return [stream.view for stream in self._streams.values()]

    def hold(self, request_id: str) -> bool:
        if stream := self._streams.get(request_id):
            stream.released.clear()
        return stream is not None

    def release(self, request_id: str) -> bool:
        if stream := self._streams.get(request_id):
            stream.released.set()
        return stream is not None

    def reprioritise(self, request_id: str, priority: int) -> bool:
        if request_id not in self._streams:
            return False
        self.priorities[request_id] = priority
        return True

    async def close(self) -> None:
        """Abort what still runs; idempotent."""
        self._closed = True
        for stream in list(self._streams.values()):
            await stream.aclose()

    def _leave(self, request_id: str, *, aborted: bool) -> None:
        del self._streams[request_id]
        del self.priorities[request_id]
        if aborted:
            self.aborted.append(request_id)


class _ScriptedStream:
    def __init__(self, engine: ScriptedEngine, request: TokenRequest, steps: Iterable[Step]) -> None:
        self._engine = engine
        self._id = request.id
        self._prompt_length = len(request.prompt)
        self._generated: int | None = None
        self._steps = iter(steps)
        self._over = asyncio.Event()
        self.released = asyncio.Event()
        """Not set: the sequence is held."""
        self.released.set()

    @property
    def view(self) -> SequenceView:
        """A prompt is computed when the first delta is reported."""
        generated = self._generated or 0
        done = self._prompt_length if self._generated is not None else 0
        if not self.released.is_set():
            return SequenceView(self._id, "paused", "held", done, generated)
        return SequenceView(self._id, "decode" if generated else "prefill", None, done, generated)

    def __aiter__(self) -> AsyncIterator[TokenDelta]:
        return self

    async def __anext__(self) -> TokenDelta:
        while not self._over.is_set():
            await self.released.wait()
            if self._over.is_set():
                break
            step = next(self._steps, None)
            if isinstance(step, Pause):
                await self._pause(step)
                continue
            if isinstance(step, TokenDelta):
                return self._report(step)
            self._end(aborted=False)
            if step is not None:
                raise step
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._over.is_set():
            self._end(aborted=True)

    def _report(self, delta: TokenDelta) -> TokenDelta:
        self._engine.steps += 1
        self._engine.generated += len(delta.tokens)
        self._generated = (self._generated or 0) + len(delta.tokens)
        if delta.finish is not None:
            self._end(aborted=False)
        return delta if delta.id == self._id else msgspec.structs.replace(delta, id=self._id)

    async def _pause(self, pause: Pause) -> None:
        if pause.seconds == 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(pause.seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    def _end(self, *, aborted: bool) -> None:
        self._over.set()
        self.released.set()  # whoever waits for a step learns that there is none
        self._engine._leave(self._id, aborted=aborted)
