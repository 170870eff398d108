"""The live server of the JavaScript clients: says its address on standard output, ends when standard input does.

The model is played: the last user turn names what it does (see `write`). Tokenizer, tool parser, surfaces and HTTP
server are the real ones; the vocabulary is of bytes and awkward pieces, so that characters are cut across tokens.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from threading import Thread

from millstream.ir.errors import engine_failed
from millstream.server.app import create_app
from millstream.server.binding import bind
from millstream.server.run import HttpServer
from millstream.server.settings import Settings
from support.played import played
from support.scripted_model import TinyTemplate, TinyTokenizer

TEXT = "Hello é€😀, <b>world</b>!"
PARIS = '{"city": "Paris", "days": 3}'
ROME = '{"city": "R\\u00f6m \\"old\\"", "days": 1}'
DOG = '{"name": "Rex", "ages": [1, 2]}'


def call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'


def write(prompt: str) -> str | Exception | None:
    """What the model writes after a prompt of `TinyTemplate`."""
    turns = re.findall(r"(\w+):(.*?)<turn>", prompt, re.DOTALL)
    role, content = turns[-1] if turns else ("", prompt)
    if role == "tool":
        results = [said for each, said in turns if each == "tool"]
        return f"The tool said {' and '.join(results)}.<turn>"
    return {
        "one call": f"I look. {call(PARIS)}<turn>",
        "two calls": f"{call(PARIS)}\n{call(ROME)}<turn>",
        "think": "<think>Hm, é.</think>Done.<turn>",
        "a dog": f"{DOG}<turn>",
        "wait": None,
        "fail": engine_failed("The engine broke."),
        "much": "ab " * 5000,
    }.get(content, f"{TEXT}<turn>")


class Template(TinyTemplate):
    source = "tiny, and it renders tools"


def main() -> None:
    provider, engine, _ = played(
        write,
        name="tiny",
        tokenizer=TinyTokenizer(),
        template=Template(),
        context_length=4096,
        tool_format="hermes",
        reasoning_format="think",
    )
    settings = Settings(drain_seconds=0.5, keep_alive_seconds=0.2)
    sock = bind("127.0.0.1", 0)
    app = create_app(provider, engine.stats, settings)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    server = HttpServer(app, sock, settings, on_ready=lambda: print(url, flush=True))
    Thread(target=_leave_with_parent, daemon=True).start()
    asyncio.run(server.run())


def _leave_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
