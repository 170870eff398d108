"""An operator's view of requests as the sequences that they became; see `millstream.pipeline.sequences.handle_of`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from millstream.engine.protocol import SequenceControl, SequenceView, TokenEngine
from millstream.ir.errors import ApiError
from millstream.pipeline.sequences import handle_of


class SequenceCommands:
    """Commands to all sequences of a request. Inputs that a request queues later begin as they were asked for."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine

    async def sequences(self) -> dict[str, list[SequenceView]]:
        """By handle, the open sequences of every request. Raises `ApiError` (503, or 501: the engine tells of none)."""
        found: defaultdict[str, list[SequenceView]] = defaultdict(list)
        for view in await self._control.sequences():
            found[handle_of(view.id)].append(view)
        return dict(found)

    async def hold(self, handle: str) -> bool:
        """Whether there were any; as for all that follow."""
        return await self._each(handle, self._control.hold)

    async def release(self, handle: str) -> bool:
        return await self._each(handle, self._control.release)

    async def reprioritise(self, handle: str, priority: int) -> bool:
        return await self._each(handle, lambda name: self._control.reprioritise(name, priority))

    @property
    def _control(self) -> SequenceControl:
        if not isinstance(self._engine, SequenceControl):
            raise ApiError("The engine tells nothing of its sequences.", code="not_supported", status=501)
        return self._engine

    async def _each(self, handle: str, command: Callable[[str], bool]) -> bool:
        views = (await self.sequences()).get(handle, [])
        told = [command(view.id) for view in views]
        return any(told)
