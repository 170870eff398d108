"""`bench service`: what a running server does for one client while others load it.

A server is started on the model and asked over HTTP. Times are those of a client, so other work on the machine shows in
them; the ratios are what to read.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from millstream.bench.drafts import Answer, Turns, measure_edit, measure_other
from millstream.bench.errors import BenchError
from millstream.bench.system import children, cpu_seconds
from millstream.ir.children import END_WITH_PARENT
from millstream.keys.file import KeyFile
from millstream.keys.key import Key, digest_of, new_id, new_token
from millstream.models.loader import load_model_file

_START_SECONDS = 120.0
_READY = re.compile(r"http://127\.0\.0\.1:(\d+)")
_WORDS = ("river", "stone", "seven", "light", "under", "count", "green", "house", "paper", "north", "cloud", "table")
_SHORT_WORDS = 100
_CONTEXT = 32_768


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Times to the first token in seconds: of a short prompt on an idle server, and beside a prompt of ``long_words``
    words of another key. ``edit`` and ``other``: with and without drafts, an answer that repeats its prompt and some
    that do not."""

    idle: list[float]
    beside: list[float]
    long_words: int
    edit: Turns
    other: Turns

    @property
    def slowdown(self) -> float:
        return statistics.median(self.beside) / statistics.median(self.idle)

    def lines(self) -> list[str]:
        """The report for a reader."""
        idle, beside = 1000 * statistics.median(self.idle), 1000 * statistics.median(self.beside)
        return [
            f"first token, idle: {idle:.0f} ms; beside {self.long_words} words of another key: {beside:.0f} ms "
            f"({self.slowdown:.1f} times)",
            self.edit.line("a file with an edit"),
            self.other.line("other text"),
        ]


def run_service_benchmark(
    path: Path, *, samples: int = 5, on_stage: Callable[[str], None] = lambda stage: None
) -> ServiceReport:
    """Start a server on the model in ``path`` and measure.

    Raises:
        BenchError: the server did not start, or refused a request.
    """
    with _serving(path) as server:
        server.post(_prompt(random.Random(0), 20), max_tokens=4)
        on_stage("first token, idle")
        idle = [server.first_token(number) for number in range(samples)]
        on_stage("first token beside a long prompt")
        beside, long_words = server.beside_long_prompt(samples)
        on_stage("an answer that repeats its prompt")
        edit = measure_edit(server.answer, samples)
        on_stage("answers that do not")
        other = measure_other(server.answer, 2 * samples)
    return ServiceReport(idle=idle, beside=beside, long_words=long_words, edit=edit, other=other)


class _Server:
    """The HTTP side of a server on this machine."""

    def __init__(self, port: int, interactive: str, other: str, *, meter: Callable[[], tuple[float, float]]) -> None:
        """``interactive`` and ``other``: two keys; long prompts come with the latter. ``meter``: the seconds of the
        clock, and those of the server's processor time."""
        self._port, self._meter = port, meter
        self._key, self._other = interactive, other
        (card,) = json.loads(b"".join(self._lines("GET", "/v1/models", None)))["data"]
        self._model, self._context = str(card["id"]), int(card["context_length"])

    def post(self, prompt: str, *, key: str | None = None, **fields: Any) -> None:
        """A whole answer, of which nothing is wanted."""
        for _ in self._lines("POST", "/v1/completions", {"model": self._model, "prompt": prompt, **fields}, key=key):
            pass

    def first_token(self, number: int) -> float:
        """Seconds to the first token of a short prompt that no other shares a beginning with."""
        prompt = f"{number} {time.time_ns()} {_prompt(random.Random(number), _SHORT_WORDS)}"
        body = {"model": self._model, "prompt": prompt, "max_tokens": 1, "stream": True}
        begun = time.perf_counter()
        for line in self._lines("POST", "/v1/completions", body):
            if line.startswith(b"data: {"):
                return time.perf_counter() - begun
        raise BenchError("a stream ended without a token")

    def beside_long_prompt(self, samples: int) -> tuple[list[float], int]:
        """The same while a prompt is computed that nearly fills the context, of 30,000 words at most."""
        words = min(25_000, (self._context - 64) * 2 // 3)
        prompt = _prompt(random.Random(time.time_ns()), words)
        fields = {"max_tokens": 1, "key": self._other}
        work = threading.Thread(target=self.post, args=(prompt,), kwargs=fields, daemon=True)
        work.start()
        time.sleep(1)
        found = []
        for number in range(samples):
            seconds = self.first_token(1000 + number)
            if work.is_alive():
                found.append(seconds)
            time.sleep(0.2)
        work.join()
        if not found:
            raise BenchError("the long prompt was computed before anything could be measured beside it")
        return found, words

    def answer(self, prompt: str, **fields: Any) -> tuple[str, Answer]:
        """The answer to one question."""
        body = {"model": self._model, "messages": [{"role": "user", "content": prompt}], "stream": True, **fields}
        begun: tuple[float, float] | None = None
        usage: dict[str, Any] = {}
        text = ""
        for line in self._lines("POST", "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}):
            if not line.startswith(b"data: {"):
                continue
            frame = json.loads(line[6:])
            usage = frame.get("usage") or usage
            text += "".join(choice["delta"].get("content") or "" for choice in frame["choices"])
            if begun is None and text:
                begun = self._meter()
        tokens = usage.get("completion_tokens", 0)
        if begun is None or tokens < 2:
            raise BenchError("the model gave no answer that could be measured")
        accepted = usage["completion_tokens_details"].get("accepted_prediction_tokens", 0)
        seconds, processor = self._meter()
        return text, Answer(tokens, accepted, seconds - begun[0], processor - begun[1])

    def _lines(self, method: str, path: str, body: dict[str, Any] | None, *, key: str | None = None) -> Iterator[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1800)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"content-type": "application/json", "authorization": f"Bearer {key or self._key}"}
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise BenchError(f"{path} was answered with {answer.status}: {answer.read(300)!r}")
            yield from answer
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None
        finally:
            connection.close()


def _meter(pid: int) -> tuple[float, float]:
    """Seconds of the clock, and of the processor in a server's process and its engines'."""
    return time.perf_counter(), sum(cpu_seconds(process) for process in (pid, *children(pid)))


def _prompt(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


@contextmanager
def _serving(path: Path) -> Iterator[_Server]:
    """A server on a free port with two keys of its own, stopped with SIGINT."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        keys = Path(folder) / "keys.json"
        interactive, other = _new_key(keys, "interactive"), _new_key(keys, "other")
        command = [sys.executable, "-m", "millstream", "serve", str(path), "--port", "0", "--no-fetch"]
        command += ["--ctx", str(_context(path)), "--keys-file", str(keys)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=END_WITH_PARENT
        ) as process:
            watchdog = threading.Timer(_START_SECONDS, process.kill)
            watchdog.start()
            try:
                assert process.stdout is not None
                ready = _READY.search(line := process.stdout.readline())
                watchdog.cancel()
                if ready is None:
                    raise BenchError(f"the server did not start: {line}")
                yield _Server(int(ready[1]), interactive, other, meter=lambda: _meter(process.pid))
            finally:
                watchdog.cancel()
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()


def _context(path: Path) -> int:
    """What the model can, but not more than the longest prompt needs."""
    with load_model_file(path) as file:
        return min(file.spec.context_length, _CONTEXT)


def _new_key(path: Path, name: str) -> str:
    token = new_token()
    key = Key(id=new_id(), name=name, digest=digest_of(token.encode()))
    KeyFile(path).change(lambda keys: ((*keys, key), None))
    return token
