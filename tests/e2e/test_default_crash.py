"""Whatever clients ask for, and whatever the engine does when it dies or hangs, its answers are those of a quiet run:
texts, calls, log probabilities, vectors, and the usage."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from support.served import Served

WORDS = "The river under the green stone counts seven lights. "
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "parts": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["name", "parts"],
    "additionalProperties": False,
}
STORY = [{"role": "user", "content": "Tell me a story about a river."}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
TOOL = {"type": "function", "function": {"name": "build", "parameters": SCHEMA, "strict": True}}
DRAWN = {"temperature": 0.9, "seed": 7}
USAGE = {"include_usage": True}
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"

ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "choices with log probabilities": (
        CHAT,
        {"messages": STORY, "n": 3, "max_tokens": 9, "logprobs": True, "top_logprobs": 2, **DRAWN},
    ),
    "streamed choices": (
        CHAT,
        {
            "messages": STORY,
            "n": 2,
            "max_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
            **DRAWN,
        },
    ),
    "a schema": (CHAT, {"messages": STORY, "max_tokens": 9, "response_format": FORMAT, **DRAWN}),
    "a tool": (CHAT, {"messages": STORY, "max_tokens": 9, "tools": [TOOL], "tool_choice": "required", **DRAWN}),
    "an item": (RESPONSES, {"input": "Tell me a story.", "max_output_tokens": 9, "store": False, **DRAWN}),
    "a message": ("/v1/messages", {"messages": STORY, "max_tokens": 9, "temperature": 0}),
    "the best of three": (COMPLETIONS, {"prompt": "One river", "n": 2, "best_of": 3, "max_tokens": 6, **DRAWN}),
    "a batch that is echoed and scored": (
        COMPLETIONS,
        {"prompt": [WORDS * 2, "One"], "echo": True, "logprobs": 2, "max_tokens": 6, **DRAWN},
    ),
    "vectors": ("/v1/embeddings", {"input": [WORDS * 2, "One river"]}),
    "a long prompt": (COMPLETIONS, {"prompt": WORDS * 30, "max_tokens": 6, **DRAWN}),
}


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--max-batch", "24", "--ctx", "2048", "--kv-cache", "16384t", "--step-deadline", "3", "--model-name", "m")


@pytest.fixture(scope="module")
def http(served: Served) -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=served.url, timeout=300, limits=limits, trust_env=False, verify=False) as client:
        yield client


def told(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """What an answer says, without what no two answers share."""
    answer = http.post(path, json={"model": "m", **body})
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        return _steady(answer.json())
    frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    folded: dict[Any, Any] = {}
    for frame in map(json.loads, frames[:-1]):
        for choice in frame["choices"]:
            seen = folded.setdefault(choice["index"], ["", []])
            seen[0] += choice["delta"].get("content") or ""
            seen[1] += [choice["finish_reason"]] if choice["finish_reason"] else []
        if frame.get("usage"):
            folded["usage"] = _steady(frame["usage"])
    return folded


def _steady(value: Any) -> Any:
    """Ids and times are new each time; what is in the prefix cache depends on who came first."""
    if isinstance(value, dict):
        passing = ("id", "created", "created_at", "completed_at", "call_id")
        return {key: _steady(each) for key, each in value.items() if key not in passing and "cache" not in key}
    return [_steady(each) for each in value] if isinstance(value, list) else value


def caught(moment: str, http: httpx.Client, answers: dict[str, Future[Any]]) -> bool:
    """Wait until a request is seen in a state; False: all had their answers first."""
    while not all(answer.done() for answer in answers.values()):
        if moment in states(http):
            return True
        time.sleep(0.005)
    return False


@pytest.fixture(scope="module")
def quiet(http: httpx.Client) -> dict[str, Any]:
    return {name: told(http, *ask) for name, ask in ASKS.items()}


def states(http: httpx.Client) -> list[str]:
    return [view["state"] for view in http.get("/v1/admin/requests").json()["data"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "fault"),
    [
        ("prefill", signal.SIGKILL),
        ("idle", signal.SIGKILL),
        ("decode", signal.SIGSTOP),
        ("idle", signal.SIGSTOP),
    ],
)
def test_answers_do_not_notice(
    served: Served, http: httpx.Client, quiet: dict[str, Any], moment: str, fault: signal.Signals
) -> None:
    restarts = served.wait_idle()["restarts"]
    assert isinstance(restarts, int)
    pid = served.engine_pid()
    if moment == "idle":
        os.kill(pid, fault)
    with ThreadPoolExecutor(len(ASKS)) as pool:
        deadline = time.monotonic() + 120
        while True:
            answers: dict[str, Future[Any]] = {name: pool.submit(told, http, *ask) for name, ask in ASKS.items()}
            if moment == "idle" or caught(moment, http, answers):
                break
            assert time.monotonic() < deadline, f"nothing is ever in {moment}"
        if moment != "idle":
            os.kill(pid, fault)
        found = {name: answer.result() for name, answer in answers.items()}
    for name, wanted in quiet.items():
        assert found[name] == wanted, name
    after = served.wait_idle()
    assert (after["restarts"], after["kv_blocks_used"]) == (restarts + 1, 0)
    assert served.engine_pid() != pid
