"""What the API process and the engine process say to each other, and how a message is framed on the socket.

A frame is a length (4 bytes, little endian) and that many bytes of msgpack.
"""

from __future__ import annotations

import struct

import msgspec

from millstream.engine.protocol import EngineInfo, EngineStats, PauseReason, SequenceView, TokenDelta, TokenRequest


class Submit(msgspec.Struct, frozen=True, tag="submit", array_like=True):
    request: TokenRequest


class Abort(msgspec.Struct, frozen=True, tag="abort", array_like=True):
    request_id: str


class Pause(msgspec.Struct, frozen=True, tag="pause", array_like=True):
    """A request makes no more tokens until `Resume` was sent for each reason that it rests for."""

    request_id: str
    reason: PauseReason


class Resume(msgspec.Struct, frozen=True, tag="resume", array_like=True):
    request_id: str
    reason: PauseReason


class Reprioritise(msgspec.Struct, frozen=True, tag="class", array_like=True):
    """The request has another ``priority`` from the next step on."""

    request_id: str
    priority: int


class StatsQuery(msgspec.Struct, frozen=True, tag="stats?", array_like=True):
    """``sequences``: each sequence is asked about too."""

    serial: int
    sequences: bool = False


class ProgressQuery(msgspec.Struct, frozen=True, tag="progress?", array_like=True):
    """How far is the step that runs?"""


Order = Submit | Abort | Pause | Resume | Reprioritise
"""What is carried out between two steps, in the order in which it was sent."""

Command = Order | StatsQuery | ProgressQuery


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """The model is loaded; commands are read from now on."""

    info: EngineInfo


class StartFailed(msgspec.Struct, frozen=True, tag="failed", array_like=True):
    """The engine cannot start; ``message`` is for the person who started it."""

    message: str


class Accepted(msgspec.Struct, frozen=True, tag="accepted", array_like=True):
    """A submitted request was taken; whatever its preparation could break, it did not break."""

    request_id: str


class Batch(msgspec.Struct, frozen=True, tag="batch", array_like=True):
    """The sequences of the step that begins now, sent when they are others than before: if the process dies in a step,
    one of them may be the cause. ``tokens``: how many the step runs, by which its duration is judged; an upper
    bound that is exact within a factor of two."""

    request_ids: list[str]
    tokens: int = 0


class Step(msgspec.Struct, frozen=True, tag="step", array_like=True):
    """New tokens of every sequence of one step; sent after each, also if there are none, as a sign of life."""

    deltas: list[TokenDelta]


class StatsReply(msgspec.Struct, frozen=True, tag="stats", array_like=True):
    """Answers a `StatsQuery`, or (``serial`` None) tells counts unasked. ``sequences`` is empty unless it was asked
    for; it has as many entries as batch and queue may hold, at most."""

    serial: int | None
    stats: EngineStats
    sequences: list[SequenceView] = []


class Progress(msgspec.Struct, frozen=True, tag="progress", array_like=True):
    """Answers a `ProgressQuery`: another ``mark`` than the last time says that the step gets on. That it is answered
    says nothing, as that is not done by the thread that steps."""

    mark: int


Event = Ready | StartFailed | Accepted | Batch | Step | StatsReply | Progress

HEADER = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
command_decoder = msgspec.msgpack.Decoder(Command)
event_decoder = msgspec.msgpack.Decoder(Event)


def frame(message: Command | Event) -> bytes:
    """One message as it goes over the socket."""
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into frames. Feed what was received, take the bodies that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        bodies = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(memoryview(buffer)[start + HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies
