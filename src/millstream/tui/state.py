"""What the screens show: the last snapshot, how the connection is, and the last minutes as series."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from millstream.admin.views import ModelView, RequestView, Snapshot

KEPT_SNAPSHOTS = 600

LinkState = Literal["connecting", "online", "lost"]


@dataclass(frozen=True)
class Link:
    """The connection to the server. ``problem``: one line; ``retry_seconds``: until the next attempt, 0 while it is
    made. ``silent_seconds``: how long an open connection has brought nothing, 0 while that is no matter."""

    state: LinkState = "connecting"
    problem: str = ""
    retry_seconds: int = 0
    silent_seconds: int = 0


class History:
    """One number of each snapshot, oldest first; None where nothing was measured."""

    def __init__(self) -> None:
        self.decode: deque[float | None] = deque(maxlen=KEPT_SNAPSHOTS)
        self.prompt: deque[float | None] = deque(maxlen=KEPT_SNAPSHOTS)
        self.first_token: deque[float | None] = deque(maxlen=KEPT_SNAPSHOTS)
        self.inter_token: deque[float | None] = deque(maxlen=KEPT_SNAPSHOTS)

    def add(self, snapshot: Snapshot) -> None:
        """Note a snapshot."""
        self.decode.append(_number(snapshot.decode_tokens_per_second))
        self.prompt.append(_number(snapshot.prompt_tokens_per_second))
        self.first_token.append(_number(snapshot.first_token.p50))
        self.inter_token.append(_number(snapshot.inter_token.p50))

    def add_gap(self) -> None:
        """Note that the server was away."""
        for series in (self.decode, self.prompt, self.first_token, self.inter_token):
            if series and series[-1] is not None:
                series.append(None)


@dataclass
class State:
    """Written by the feed alone, read by every screen. ``starting``: the server was started just now, so that its
    absence is no problem until it has been there."""

    url: str
    starting: bool = False
    link: Link = field(default_factory=Link)
    snapshot: Snapshot | None = None
    history: History = field(default_factory=History)

    def take(self, snapshot: Snapshot) -> None:
        """A snapshot has come: the server is there."""
        self.snapshot = snapshot
        self.starting = False
        self.history.add(snapshot)
        self.link = Link("online")

    def wait(self, silent_seconds: int) -> None:
        """The connection is there, but nothing has come for so long."""
        if self.link.state == "online":
            self.link = Link("online", silent_seconds=silent_seconds)

    def lose(self, problem: str, retry_seconds: int) -> None:
        """The server is away. Its last snapshot stays; the status line says that it is old."""
        if self.link.state == "online":
            self.history.add_gap()
        self.link = Link("lost", problem, retry_seconds)

    @property
    def requests(self) -> list[RequestView]:
        """Open requests of the last snapshot."""
        return self.snapshot.requests if self.snapshot else []

    @property
    def models(self) -> list[ModelView]:
        """Models of the last snapshot."""
        return self.snapshot.models if self.snapshot else []

    @property
    def default_model(self) -> str:
        """The model to ask if the user has chosen none; empty if none is known. Requests have to name one."""
        loaded = [model for model in self.models if model.state == "loaded"]
        chosen = next((model for model in loaded if model.default), loaded[0] if loaded else None)
        engines = self.snapshot.engines if self.snapshot else []
        return chosen.name if chosen else engines[0].model if engines else ""


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
