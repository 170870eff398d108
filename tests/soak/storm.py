"""A storm of clients against a running server whose engine is killed, and what must be true after it.

A set of requests is answered one by one first. In the storm, clients ask them again in any order, streamed and not, on
every surface; some leave in the middle, some stop reading for a while, some send what is no request; and the engine
process is killed. Every answer that was read to its end must be the one of the quiet run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import msgspec

from support.readers import read
from support.served import Served

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
COMPLETIONS = "/v1/completions"
_SECONDS = 1800
"""An answer may take long on a machine that does other things too; one that never comes is a fault."""
MALFORMED = (
    b"{",
    b"[]",
    b'{"model": 7}',
    b'{"model": "MODEL", "messages": "hi", "input": 3, "max_tokens": 5}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 5, "stram": 1}',
    b'{"model": "MODEL", "messages": [], "input": [], "max_tokens": 5}',
)


class Ask(msgspec.Struct, frozen=True):
    """One request: its surface, its body without ``stream``."""

    surface: str
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return PATHS.get(self.surface, COMPLETIONS)


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """How hard it blows: ``requests`` in all, from ``clients`` at once, with ``kills`` spread over them."""

    clients: int
    requests: int
    kills: int
    seed: int = 0
    long_prompt: int = 400
    """Words of the longest prompts."""
    max_tokens: int = 60


class Report(msgspec.Struct):
    """What happened. ``faults``: what must not."""

    ends: Counter[str]
    faults: list[str]
    restarts: int
    rss_before: dict[str, int]
    rss_after: dict[str, int]
    seconds: float


def asks(model: str, storm: Storm) -> list[Ask]:
    """The requests: short and long prompts, few and many tokens, seeds, several choices, priorities."""
    chance = random.Random(storm.seed)
    words = ["river", "stone", "seven", "light", "under", "count", "the", "a", "of", "green"]
    found = []
    for index in range(24):
        length = (5, 30, storm.long_prompt)[index % 3]
        text = f"{index}: " + " ".join(chance.choice(words) for _ in range(length))
        most = chance.choice((1, 7, storm.max_tokens))
        body: dict[str, Any] = {"model": model, "temperature": 0.8, "priority": chance.choice((0, 0, 1))}
        surface = ("chat", "responses", "messages", "completions")[index % 4]
        if surface == "responses":
            body |= {"input": text, "max_output_tokens": most, "seed": index, "store": False}
        elif surface == "messages":
            # The surface has no seed, so its answers repeat only if they are greedy.
            body |= {"messages": [{"role": "user", "content": text}], "max_tokens": most, "temperature": 0}
        elif surface == "chat":
            body |= {"messages": [{"role": "user", "content": text}], "max_tokens": most, "seed": index}
        else:
            body |= {"prompt": text, "max_tokens": most, "seed": index, "n": chance.choice((1, 3))}
        found.append(Ask(surface, body))
    return found


async def run(server: Served, model: str, storm: Storm) -> Report:
    """Quiet run, storm, and the look at what is left."""
    begun = time.monotonic()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=_SECONDS, limits=limits, trust_env=False) as http:
        wanted = asks(model, storm)
        quiet = [await _answer(http, ask, stream=False) for ask in wanted]
        report = Report(Counter(), [], 0, memory(server), {}, 0.0)
        for ask, answer in zip(wanted, quiet, strict=True):
            if answer.get("finish") not in ("stop", "length") and "texts" not in answer:
                report.faults.append(f"quiet {ask.surface}: {answer}")
        await _Clients(server, http, wanted, quiet, storm, report).run()
    idle: dict[str, Any] = await asyncio.to_thread(server.wait_idle, _SECONDS)
    if idle["kv_blocks_used"]:
        report.faults.append(f"{idle['kv_blocks_used']} blocks are held by nobody")
    report.restarts = idle["restarts"]
    report.rss_after = memory(server)
    report.seconds = time.monotonic() - begun
    return report


class _Clients:
    def __init__(
        self,
        server: Served,
        http: httpx.AsyncClient,
        wanted: list[Ask],
        quiet: list[dict[str, Any]],
        storm: Storm,
        report: Report,
    ) -> None:
        self._server = server
        self._http = http
        self._wanted = wanted
        self._quiet = quiet
        self._storm = storm
        self._report = report
        self._left = storm.requests
        self._model = str(wanted[0].body["model"])

    async def run(self) -> None:
        killer = asyncio.create_task(self._kill())
        await asyncio.gather(*(self._client(k) for k in range(self._storm.clients)))
        await killer

    async def _kill(self) -> None:
        """Kill the engine at even distances of the storm."""
        storm = self._storm
        for k in range(storm.kills):
            due = storm.requests * (storm.kills - k) // (storm.kills + 1)
            while self._left > due:  # noqa: ASYNC110  (what is awaited is the progress of others)
                await asyncio.sleep(0.02)
            for _ in range(600):
                try:
                    os.kill(self._server.engine_pid(), signal.SIGKILL)
                    break
                except (ValueError, ProcessLookupError):  # it is between two processes
                    await asyncio.sleep(0.1)

    async def _client(self, number: int) -> None:
        chance = random.Random(1000 * self._storm.seed + number)
        while self._left > 0:
            self._left -= 1
            kind = chance.choices(("read", "leave", "stall", "malformed"), (6, 2, 1, 1))[0]
            index = chance.randrange(len(self._wanted))
            try:
                await getattr(self, f"_{kind}")(index, chance)
            except (httpx.HTTPError, ValueError, KeyError, AssertionError) as error:
                self._report.faults.append(f"{kind} {self._wanted[index].surface}: {error!r}")

    async def _read(self, index: int, chance: random.Random) -> None:
        await self._hold(index, stream=chance.random() < 0.7)

    async def _stall(self, index: int, chance: random.Random) -> None:
        await self._hold(index, stream=True, pause=chance.uniform(0.1, 2))

    async def _hold(self, index: int, *, stream: bool, pause: float = 0.0) -> None:
        """An answer that is read to its end is that of the quiet run."""
        answer = await _answer(self._http, self._wanted[index], stream=stream, pause=pause)
        while answer.get("status") == 429:
            self._report.ends["told to come back"] += 1
            await asyncio.sleep(0.5)
            answer = await _answer(self._http, self._wanted[index], stream=stream, pause=pause)
        self._report.ends["stalled and read" if pause else "read"] += 1
        if answer != self._quiet[index]:
            self._report.faults.append(f"{self._wanted[index].surface}: {answer} instead of {self._quiet[index]}")

    async def _leave(self, index: int, chance: random.Random) -> None:
        ask = self._wanted[index]
        self._report.ends["left"] += 1
        if chance.random() < 0.5:
            request = self._http.post(ask.path, json=ask.body)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(request, chance.uniform(0.001, 0.3))
            return
        async with self._http.stream("POST", ask.path, json={**ask.body, "stream": True}) as answer:
            frames = chance.randint(0, 5)
            async for _ in answer.aiter_raw():
                frames -= 1
                if frames < 0:
                    break

    async def _malformed(self, index: int, chance: random.Random) -> None:
        body = chance.choice(MALFORMED).replace(b"MODEL", self._model.encode())
        answer = await self._http.post(
            chance.choice([*PATHS.values()]), content=body, headers={"content-type": "application/json"}
        )
        self._report.ends["refused"] += 1
        if answer.status_code != 400 or "message" not in answer.json()["error"]:
            self._report.faults.append(f"{body!r} is answered with {answer.status_code}: {answer.text[:200]}")


async def _answer(http: httpx.AsyncClient, ask: Ask, *, stream: bool, pause: float = 0.0) -> dict[str, Any]:
    """Text and finish as a client has them; ``pause``: seconds without reading after the first piece."""
    if not stream:
        answer = await http.post(ask.path, json=ask.body)
        return _told(ask, answer.status_code, answer.content, stream=False)
    async with http.stream("POST", ask.path, json={**ask.body, "stream": True}) as answer:
        pieces = []
        async for piece in answer.aiter_raw():
            pieces.append(piece)
            if pause:
                await asyncio.sleep(pause)
                pause = 0
    return _told(ask, answer.status_code, b"".join(pieces), stream=answer.status_code == 200)


def _told(ask: Ask, status: int, raw: bytes, *, stream: bool) -> dict[str, Any]:
    if status == 429:
        return {"status": status}
    if status != 200 or ask.surface != "completions":
        seen = read(ask.surface, status, raw, stream=stream)
        return {"text": seen.text, "finish": seen.finish, "error": seen.error}
    texts: dict[int, str] = {}
    finishes: dict[int, str] = {}
    if stream:
        assert raw.endswith(b"data: [DONE]\n\n"), raw[-200:]
        frames = [msgspec.json.decode(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")]
    else:
        frames = [msgspec.json.decode(raw)]
    for choice in (choice for frame in frames for choice in frame["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        if choice["finish_reason"]:
            assert choice["index"] not in finishes
            finishes[choice["index"]] = choice["finish_reason"]
    return {"texts": texts, "finishes": finishes}


def memory(server: Served) -> dict[str, int]:
    """Resident bytes of both processes."""
    return {name: _resident(pid) for name, pid in (("api", server.process.pid), ("engine", server.engine_pid()))}


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0
