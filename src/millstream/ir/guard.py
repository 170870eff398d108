"""Law 1, one end: whatever a source does, its guarded stream ends with exactly one terminal event.

What the guard does with a source that breaks the rules of `millstream.ir.deltas`:

| the source | the reader sees |
|---|---|
| raises `ApiError` | an `Error` with its fields |
| raises anything else | an `Error` without internals; the exception is logged |
| stops while a choice is open | an `Error`: ended without a result |
| sends a delta for a closed choice, or goes on after the last `Finish` or an `Error` | nothing of it |
| sends its first `Start` after other deltas, or a second one for the same prompt | nothing of it |
| sends a `Refusal` early, twice, or beside tool calls | the first one, just before `Finish`; none if there were calls |
| starts call number k as anything but index k, or sends arguments of a call that never started | an `Error` |
| names a choice that was not asked for, or sends something that is no delta | an `Error` |

Dropped is only what repeats or decorates; where dropping would lose part of the answer, the stream fails instead.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from millstream.ir.deltas import Content, Delta, Error, Finish, Reasoning, Refusal, Start, ToolCallArgs, ToolCallStart
from millstream.ir.errors import ApiError
from millstream.ir.provider import DeltaStream

log = logging.getLogger(__name__)


def guard(source: AsyncIterable[Delta], *, choices: int = 1) -> DeltaStream:
    """Wrap a source (a stream, an async generator, any async iterable) of ``choices`` choices.

    The source is closed once: when the stream ends, when the reader is cancelled, or by `aclose`. A reader that waits
    in another task when `aclose` is called sees the end of the stream as soon as the source lets go of it.
    """
    if choices < 1:
        raise ValueError("a stream has at least one choice")
    return _Guard(source, choices)


def error_of(error: ApiError) -> Error:
    """The delta that tells about a failure in the middle of a stream."""
    return Error(
        error.message,
        type=error.type,
        code=error.code,
        status=error.status,
        param=error.param,
        retry_after=error.retry_after,
    )


def problem_of(error: Error) -> ApiError:
    """The reverse: the failure of an answer of which nothing has been sent."""
    return ApiError(
        error.message,
        type=error.type,
        code=error.code,
        status=error.status,
        param=error.param,
        retry_after=error.retry_after,
    )


def failure(exception: Exception) -> Error:
    """The delta for an exception of a source: an `ApiError` speaks for itself, anything else is logged, not shown."""
    if isinstance(exception, ApiError):
        return error_of(exception)
    log.error("a source of deltas failed", exc_info=exception)
    return Error("Internal error while generating the answer.")


class _Violation(Exception):
    """The source broke a rule in a way that would lose part of the answer."""


class _Choice:
    """What the guard remembers of an open choice."""

    __slots__ = ("calls", "refusal")

    def __init__(self) -> None:
        self.calls = 0
        self.refusal: Refusal | None = None


class _Guard:
    def __init__(self, source: AsyncIterable[Delta], choices: int) -> None:
        self._source = source
        self._iterator: AsyncIterator[Delta] = aiter(source)
        self._open = {index: _Choice() for index in range(choices)}
        self._choices = choices
        self._started: set[int] = set()
        self._spoken = False
        self._ended = False
        self._source_closed = False
        self._held: Finish | None = None

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._held is not None:
            finish, self._held = self._held, None
            return await self._finish(finish)
        while not self._ended:
            try:
                delta = await self._iterator.__anext__()
            except StopAsyncIteration:
                return await self._fail(Error("The stream ended without a result."))
            except Exception as exception:
                return await self._fail(failure(exception))
            except BaseException:
                self._ended = True
                await self._close_source()
                raise
            if self._ended:  # closed while this reader waited
                await self._close_source()
                break
            try:
                passed = self._check(delta)
            except _Violation as violation:
                log.error("a source of deltas broke the order of the stream: %s", violation)
                return await self._fail(Error("Internal error: the answer's parts came in an impossible order."))
            if passed is None:
                continue
            if type(passed) is Finish:
                return await self._finish(passed)
            if type(passed) is Error:
                return await self._fail(passed)
            return passed
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the source; idempotent."""
        self._ended = True
        self._held = None
        await self._close_source()

    def _check(self, delta: Delta) -> Delta | None:
        """The delta to pass on, or None to drop it."""
        kind = type(delta)
        if kind is Content and delta.choice in self._open:  # type: ignore[union-attr]
            # Nearly all deltas are this one, and no other rule is about it.
            self._spoken = True
            return delta
        if kind is Error:
            return delta
        if kind is Start:
            return self._check_start(delta)  # type: ignore[arg-type]
        if kind not in (Content, Reasoning, ToolCallStart, ToolCallArgs, Refusal, Finish):
            raise _Violation(f"{kind.__name__} is no delta")
        self._spoken = True
        index = delta.choice  # type: ignore[union-attr]
        choice = self._open.get(index)
        if choice is None:
            if not 0 <= index < self._choices:
                raise _Violation(f"choice {index} of {self._choices}")
            return None
        if isinstance(delta, ToolCallStart):
            if delta.index != choice.calls:
                raise _Violation(f"call {delta.index} starts after {choice.calls} calls")
            choice.calls += 1
        elif isinstance(delta, ToolCallArgs):
            if not 0 <= delta.index < choice.calls:
                raise _Violation(f"arguments of call {delta.index}, which has not started")
        elif isinstance(delta, Refusal):
            choice.refusal = choice.refusal or delta
            return None
        elif isinstance(delta, Finish) and choice.refusal is not None and choice.calls == 0:
            refusal, choice.refusal = choice.refusal, None
            self._held = delta
            return refusal
        return delta

    def _check_start(self, start: Start) -> Start | None:
        late = self._spoken and not self._started
        if late or start.prompt in self._started or not 0 <= start.prompt < self._choices:
            return None
        self._started.add(start.prompt)
        return start

    async def _finish(self, finish: Finish) -> Finish:
        del self._open[finish.choice]
        if not self._open:
            self._ended = True
            await self._close_source()
        return finish

    async def _fail(self, error: Error) -> Error:
        if self._ended:  # closed by `aclose` meanwhile: nobody is to be told
            raise StopAsyncIteration
        self._ended = True
        await self._close_source()
        return error

    async def _close_source(self) -> None:
        if self._source_closed:
            return
        self._source_closed = True
        # An async iterable may hand out another object as its iterator; what is open is the iterator.
        closing: Any = self._iterator if hasattr(self._iterator, "aclose") else self._source
        if not hasattr(closing, "aclose"):
            return
        try:
            await closing.aclose()
        except RuntimeError as error:
            # A generator cannot be closed while another task waits in it: that task closes it when it wakes.
            if "already running" in str(error):
                self._source_closed = False
            else:
                log.exception("a source of deltas failed to close")
        except Exception:
            log.exception("a source of deltas failed to close")
