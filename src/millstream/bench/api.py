"""`bench api`: what the API process spends per streamed token, without a model.

The server runs in a process of its own over the scripted engine, one token a step and one event a token, the dearest
case. Measured is the processor time of all threads of that process (user and system, from /proc), so other work on the
machine disturbs it little. Short and long answers are measured in turns: their difference is the cost of tokens, what
remains of the short ones the cost of a request. Every answer is compared with what it should be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from millstream.bench.api_client import Connections, body_of, http_request
from millstream.bench.api_script import MODEL, prompt_of, text_of
from millstream.bench.api_server import api_server
from millstream.bench.api_surfaces import API_SURFACES, ApiSurface
from millstream.bench.errors import BenchError
from millstream.bench.system import cpu_seconds

STREAMS = (1, 16, 100, 500)
_SAMPLE_TOKENS = 12_800
_SAMPLES = 3
_SHORT = 8


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``tokens``: of the long answers. ``sample_tokens``: of those, at least so many over all streams are a sample."""

    surfaces: tuple[str, ...] = tuple(API_SURFACES)
    streams: tuple[int, ...] = STREAMS
    tokens: int = 256
    sample_tokens: int = _SAMPLE_TOKENS
    samples: int = _SAMPLES


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs already: another engine's, to compare with. ``pid``: its API process."""

    url: str
    pid: int
    model: str


class ApiCase(msgspec.Struct, frozen=True, kw_only=True):
    """One surface with so many streams at once. ``token_us`` and ``request_us``: processor time of the server per
    streamed token, and per request beside its tokens, of each sample, in µs; ``requests_per_second`` by the wall clock,
    of the long answers of the best sample."""

    server: str
    surface: str
    streams: int
    tokens: int
    token_us: list[float]
    request_us: list[float]
    requests_per_second: float

    @property
    def best_us(self) -> float:
        """The sample that other work on the machine disturbed least."""
        return min(self.token_us)


class ApiReport(msgspec.Struct, frozen=True, kw_only=True):
    """All cases. ``tokens``: of the long answers."""

    tokens: int
    cases: list[ApiCase]


def run_api_benchmark(
    options: ApiOptions, *, compare: Target | None = None, on_stage: Callable[[str], None] = lambda stage: None
) -> ApiReport:
    """Measure our server, then ``compare`` with the same client.

    Raises:
        BenchError: a server did not start or answered wrongly, with what was wrong.
    """
    cases: list[ApiCase] = []
    with api_server() as (port, pid):
        cases += _server_cases(_Own("millstream", ("127.0.0.1", port), pid, MODEL), options, on_stage)
    if compare is not None:
        parts = urlsplit(compare.url)
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        cases += _server_cases(_Other(compare.model, address, compare.pid, compare.model), options, on_stage)
    return ApiReport(tokens=options.tokens, cases=cases)


class _Own:
    """Our server: every text is known."""

    def __init__(self, name: str, address: tuple[str, int], pid: int, model: str) -> None:
        self.name = name
        self.address = address
        self.pid = pid
        self._model = model

    def request(self, surface: ApiSurface, stream: int, tokens: int) -> bytes:
        body = surface.body(self._model, prompt_of(stream, tokens), tokens + 16)
        return http_request(surface.path, body, self.address[0])

    def check(self, surface: ApiSurface, stream: int, tokens: int, answer: bytes) -> int:
        """The number of streamed tokens. Raises `BenchError` if the text or the end is not as it must be."""
        told = surface.read(body_of(answer))
        if told.text != text_of(stream, tokens):
            raise BenchError(f"stream {stream} has another text than asked for: {told.text[:200]!r}")
        if told.ends != 1 or not told.ends_last:
            raise BenchError(f"stream {stream} ended {told.ends} times")
        return tokens


class _Other(_Own):
    """Another server: only that it ended once, after some text, can be checked."""

    def request(self, surface: ApiSurface, stream: int, tokens: int) -> bytes:
        more = {"ignore_eos": True} if surface.done else {}
        body = surface.body(self._model, f"Story {stream}:", tokens, **more)
        return http_request(surface.path, body, self.address[0])

    def check(self, surface: ApiSurface, stream: int, tokens: int, answer: bytes) -> int:
        told = surface.read(body_of(answer))
        if told.ends != 1 or not told.events:
            raise BenchError(f"stream {stream} of {self.name} has {told.events} text events and {told.ends} ends")
        return told.events


def _server_cases(server: _Own, options: ApiOptions, on_stage: Callable[[str], None]) -> list[ApiCase]:
    cases = []
    for name in options.surfaces:
        for streams in options.streams:
            on_stage(f"{server.name}: {name} x{streams}")
            cases.append(_case(server, name, streams, options))
    return cases


class _Sample(NamedTuple):
    """Of some rounds of requests: processor time of the server, seconds by the clock, tokens that were streamed."""

    requests: int
    spent: float
    seconds: float
    tokens: int


def _case(server: _Own, name: str, streams: int, options: ApiOptions) -> ApiCase:
    surface = API_SURFACES[name]
    lengths = (min(_SHORT, max(1, options.tokens // 2)), options.tokens)
    rounds = max(1, -(-options.sample_tokens // (streams * options.tokens)))
    tokens_us, requests_us, rates = [], [], []
    with Connections(server.address, streams) as connections:
        _sample(server, surface, connections, streams, options.tokens, 1)
        for _ in range(options.samples):
            short, long = (_sample(server, surface, connections, streams, length, rounds) for length in lengths)
            token = (long.spent - short.spent) / max(1, long.tokens - short.tokens)
            tokens_us.append(1e6 * token)
            requests_us.append(1e6 * (short.spent - token * short.tokens) / short.requests)
            rates.append(long.requests / long.seconds)
    return ApiCase(
        server=server.name,
        surface=name,
        streams=streams,
        tokens=options.tokens,
        token_us=tokens_us,
        request_us=requests_us,
        requests_per_second=max(rates),
    )


def _sample(
    server: _Own, surface: ApiSurface, connections: Connections, streams: int, tokens: int, rounds: int
) -> _Sample:
    requests = [server.request(surface, stream, tokens) for stream in range(streams)]
    spent, begun = cpu_seconds(server.pid), time.perf_counter()
    answers = [connections.ask(requests) for _ in range(rounds)]
    spent, seconds = cpu_seconds(server.pid) - spent, time.perf_counter() - begun
    told = sum(server.check(surface, stream, tokens, each) for round_ in answers for stream, each in enumerate(round_))
    return _Sample(rounds * streams, spent, seconds, told)
