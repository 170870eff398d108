"""What an operator's commands need of a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from millstream.engine.protocol import SequenceView
from millstream.ir.errors import ApiError


@runtime_checkable
class RequestControl(Protocol):
    """What a provider can also do if its engine lets it: see and change how open requests are served. A request is
    named by its `Service.handle`. All raise `ApiError` (503) if the engine does not answer."""

    async def sequences(self) -> Mapping[str, Sequence[SequenceView]]:
        """The open sequences of every request that has some."""
        ...

    async def hold(self, handle: str) -> bool:
        """Have the sequences of a request rest until `release`. Returns whether there are any."""
        ...

    async def release(self, handle: str) -> bool:
        """They go on. Returns whether there are any."""
        ...

    async def reprioritise(self, handle: str, priority: int) -> bool:
        """Serve them in another class. Returns whether there are any."""
        ...


def no_control() -> ApiError:
    """A 501: what answers here has no such commands."""
    return ApiError(
        "What answers requests here can neither pause them nor change their priority.",
        type="server_error",
        code="not_supported",
        status=501,
    )
