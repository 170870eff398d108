"""A storm of clients against a running server whose engine is killed, and what must be true after it.

A set of requests is answered one by one first. In the storm, clients ask them again in any order, streamed and not, on
every surface; some leave in the middle, some stop reading for a while, some send what is no request; and the engine
process is killed, each time in the middle of an answer. Every answer that was read to its end must be the one of the
quiet run, and what was read by those who left must be its beginning. Then it blows twice more without kills: the
processes are the same before and after the second, and must not have grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from support.conversation import faults
from support.readers import read
from support.served import Served

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
_SECONDS = 1800
"""An answer may take long on a machine that does other things too; one that never comes is a fault."""
MALFORMED = (
    b"{",
    b"[]",
    b'{"model": 7}',
    b'{"model": "MODEL", "messages": "hi", "input": 3, "prompt": {}, "max_tokens": 5}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi", "stram": 1}',
    b'{"model": "MODEL", "messages": [], "input": [], "prompt": [], "max_tokens": 5}',
    b'{"model": "MODEL", "messages": [{"role": "user", "content": "a"}], "input": "a", "prompt": "a", "timeout": 1e9}',
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "size": {"type": "number"}},
    "required": ["name", "size"],
}
Begun = Callable[[], Awaitable[None]]
LEFT = {"received": "left in the queue", "prefill": "left in prefill", "first_token": "left in the answer"}
"""By the last of these that the timeline of a request has which was left."""


class Ask(msgspec.Struct, frozen=True):
    """One request: its surface, its body without ``stream``."""

    surface: str
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return PATHS[self.surface]


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """How hard it blows: ``requests`` from ``clients`` at once, with ``kills`` spread over them, and twice ``calm``
    more without."""

    clients: int
    requests: int
    kills: int
    calm: int = 0
    seed: int = 0
    long_prompt: int = 400
    """Words of the longest prompts."""
    max_tokens: int = 60


class Report(msgspec.Struct):
    """What happened. ``faults``: what must not. ``resumed``: sequences that went on after a kill. ``rss_before``: after
    the quiet run; ``rss_storm``: after the kills and the first calm requests; ``rss_calm``: at the end."""

    ends: Counter[str]
    faults: list[str]
    restarts: int
    resumed: int
    rss_before: dict[str, int]
    rss_storm: dict[str, int]
    rss_calm: dict[str, int]
    seconds: float


def asks(model: str, storm: Storm) -> list[Ask]:
    """The requests: prompts and answers of several lengths, seeds, choices, priorities; the last has a long answer."""
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
            if index % 8 == 0:
                body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
        else:
            body |= {"prompt": text, "max_tokens": most, "seed": index, "n": chance.choice((1, 3))}
        found.append(Ask(surface, body))
    return [*found, long_answer(model)]


def long_answer(model: str) -> Ask:
    """A request whose answer is sure to go on for a while, even of a small model."""
    body = {"model": model, "prompt": "On and on", "max_tokens": 400, "min_tokens": 400, "ignore_eos": True, "seed": 1}
    return Ask("completions", body)


def long_body(ask: Ask, begin: str, words: int) -> dict[str, Any]:
    """The request with a prompt of so many words, the first of them ``begin``."""
    text = f"{begin} " + "river " * words
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "input": text, "prompt": text}
    return {**ask.body, **{name: value for name, value in fields.items() if name in ask.body}}


async def run(server: Served, model: str, storm: Storm) -> Report:
    """Quiet run, storm, and the look at what is left."""
    begun = time.monotonic()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=_SECONDS, limits=limits, trust_env=False) as http:
        wanted = asks(model, storm)
        quiet = [await _answer(http, ask, stream=False) for ask in wanted]
        report = Report(Counter(), [], 0, 0, memory(server), {}, {}, 0.0)
        for ask, answer in zip(wanted, quiet, strict=True):
            if answer.get("finish") not in ("stop", "length") and "texts" not in answer:
                report.faults.append(f"quiet {ask.surface}: {answer}")
        await _Clients(server, http, wanted, quiet, storm, report).run()
        await _settled(server, report)
        # The engine of the last kill is new: its first storm takes it to where it is to stay.
        calm = msgspec.structs.replace(storm, requests=storm.calm, kills=0, seed=storm.seed + 1)
        await _Clients(server, http, wanted, quiet, calm, report).run()
        await _settled(server, report)
        report.rss_storm = memory(server)
        await _Clients(server, http, wanted, quiet, calm, report).run()
        report.restarts = await _settled(server, report)
        report.rss_calm = memory(server)
        metrics = (await http.get("/metrics")).text
    (resumed,) = [line for line in metrics.splitlines() if line.startswith("millstream_resumed_streams_total")]
    report.resumed = int(float(resumed.split()[-1]))
    report.seconds = time.monotonic() - begun
    return report


async def _settled(server: Served, report: Report) -> int:
    """Wait until all is over, and look for blocks that were lost; returns the number of restarts."""
    idle: dict[str, Any] = await asyncio.to_thread(server.wait_idle, _SECONDS)
    if idle["kv_blocks_used"]:
        report.faults.append(f"{idle['kv_blocks_used']} blocks are held by nobody")
    return int(idle["restarts"])


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
        """``quiet``: the answers to ``wanted``, the last of which is long enough to kill the engine in it."""
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
        """Kill the engine at even distances of the storm, each time in the middle of an answer."""
        storm = self._storm
        for k in range(storm.kills):
            due = storm.requests * (storm.kills - k) // (storm.kills + 1)
            while self._left > due:  # noqa: ASYNC110  (what is awaited is the progress of others)
                await asyncio.sleep(0.02)
            await self._whole(-1, stream=True, begun=self._kill_engine)

    async def _kill_engine(self) -> None:
        os.kill(self._server.engine_pid(), signal.SIGKILL)

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
        await self._whole(index, stream=chance.random() < 0.7)
        self._report.ends["read"] += 1

    async def _stall(self, index: int, chance: random.Random) -> None:
        await self._whole(index, stream=True, begun=partial(asyncio.sleep, chance.uniform(0.1, 2)))
        self._report.ends["stalled and read"] += 1

    async def _whole(self, index: int, *, stream: bool, begun: Begun | None = None) -> None:
        """An answer that is read to its end is that of the quiet run."""
        answer = await _answer(self._http, self._wanted[index], stream=stream, begun=begun)
        while answer.get("status") == 429:
            self._report.ends["told to come back"] += 1
            await asyncio.sleep(0.5)
            answer = await _answer(self._http, self._wanted[index], stream=stream, begun=begun)
        if answer != self._quiet[index]:
            self._report.faults.append(f"{self._wanted[index].surface}: {answer} instead of {self._quiet[index]}")

    async def _leave(self, index: int, chance: random.Random) -> None:
        """Whoever leaves has read the beginning of the answer of the quiet run; where they left, the server tells."""
        ask = self._wanted[index]
        name = uuid.uuid4().hex
        headers = {"x-request-id": name}
        way = chance.choice(("prefill", "any time", "some frames"))
        if way == "prefill":
            await self._leave_in_prefill(ask, headers, stream=chance.random() < 0.5)
        elif way == "any time":
            request = self._http.post(ask.path, json=ask.body, headers=headers)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(request, chance.uniform(0.001, 3))
        else:
            pieces = b""
            body = {**ask.body, "stream": True}
            async with self._http.stream("POST", ask.path, json=body, headers=headers) as answer:
                frames = chance.randint(0, 5)
                async for piece in answer.aiter_raw():
                    pieces += piece
                    frames -= 1
                    if frames < 0:
                        break
            if answer.status_code == 200 and not begins(self._quiet[index], ask.surface, pieces):
                self._report.faults.append(f"{ask.surface}: {pieces!r} begins no {self._quiet[index]}")
        self._report.ends[await self._where_left(name)] += 1

    async def _leave_in_prefill(self, ask: Ask, headers: dict[str, str], *, stream: bool) -> None:
        """Ask with a long prompt that nobody has asked with before, and leave as soon as it is being computed."""
        body = {**long_body(ask, headers["x-request-id"], self._storm.long_prompt), "stream": stream}
        request = asyncio.create_task(self._http.post(ask.path, json=body, headers=headers))
        name = headers["x-request-id"]
        while not request.done() and "prefill" not in await self._timeline(name):  # noqa: ASYNC110  (the server tells)
            await asyncio.sleep(0.02)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    async def _timeline(self, name: str) -> list[str]:
        """What happened to a request so far, nothing if the server does not know it."""
        answer = await self._http.get(f"/v1/admin/requests/{name}")
        return [event["kind"] for event in answer.json()["timeline"]] if answer.status_code == 200 else []

    async def _where_left(self, name: str) -> str:
        """What the server had done for a request when its client left."""
        for _ in range(100):
            kinds = await self._timeline(name)
            if not kinds:
                return "left before it was read, or refused"
            if "finished" in kinds:
                return "left after the end"
            if "cancelled" in kinds or "failed" in kinds:
                return LEFT[[kind for kind in kinds if kind in LEFT][-1]]
            await asyncio.sleep(0.05)
        return "left, but is not let go"

    async def _malformed(self, index: int, chance: random.Random) -> None:
        body = chance.choice(MALFORMED).replace(b"MODEL", self._model.encode())
        answer = await self._http.post(
            chance.choice([*PATHS.values()]), content=body, headers={"content-type": "application/json"}
        )
        self._report.ends["refused"] += 1
        if answer.status_code != 400 or "message" not in answer.json()["error"]:
            self._report.faults.append(f"{body!r} is answered with {answer.status_code}: {answer.text[:200]}")


async def _answer(http: httpx.AsyncClient, ask: Ask, *, stream: bool, begun: Begun | None = None) -> dict[str, Any]:
    """Text and finish as a client has them; ``begun``: what is waited for after the first piece of an answer, without
    reading."""
    if not stream:
        answer = await http.post(ask.path, json=ask.body)
        return _told(ask, answer.status_code, answer.content, stream=False)
    async with http.stream("POST", ask.path, json={**ask.body, "stream": True}) as answer:
        pieces = []
        async for piece in answer.aiter_raw():
            pieces.append(piece)
            if begun is not None and answer.status_code == 200:
                await begun()
                begun = None
    raw = b"".join(pieces)
    if answer.status_code == 200 and ask.surface != "completions":
        assert faults(ask.surface, raw, usage=False) == []
    return _told(ask, answer.status_code, raw, stream=answer.status_code == 200)


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


def begins(whole: dict[str, Any], surface: str, raw: bytes) -> bool:
    """Whether the beginning of a stream says the beginning of an answer."""
    texts: dict[int, str] = {}
    for line in raw.split(b"\n\n")[:-1]:
        data = line.rpartition(b"data: ")[2]
        if not data.startswith(b"{"):
            continue
        frame = msgspec.json.decode(data)
        for choice in frame.get("choices", ()):
            text = choice["text"] if surface == "completions" else choice["delta"].get("content")
            texts[choice["index"]] = texts.get(choice["index"], "") + (text or "")
        delta = (
            frame.get("delta") if frame.get("type") in ("response.output_text.delta", "content_block_delta") else None
        )
        texts[0] = texts.get(0, "") + (delta if isinstance(delta, str) else (delta or {}).get("text", ""))
    wanted = whole.get("texts") or {0: whole["text"]}
    return all(wanted[choice].startswith(text) for choice, text in texts.items())


def memory(server: Served) -> dict[str, int]:
    """Resident bytes of both processes."""
    return {name: _resident(pid) for name, pid in (("api", server.process.pid), ("engine", server.engine_pid()))}


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0
