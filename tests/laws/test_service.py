"""How a request is served (`priority`, `timeout`, `speculation`) means the same on every surface."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from millstream.engine.protocol import TokenDelta
from support.conversation import SURFACES, PlainTokenizer, Played, body
from support.scripted_model import EOS

EVERYWHERE = pytest.mark.parametrize("surface", SURFACES)
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True])


def playing(*steps: TokenDelta, **settings: Any) -> Played:
    played = Played(**settings)
    played.plan = lambda request: steps
    return played


def complete() -> Played:
    return playing(TokenDelta("", [97, EOS], finish="stop"))


@EVERYWHERE
async def test_they_reach_the_engine(surface: str) -> None:
    played = complete()
    wire = {**body(surface), "priority": -3, "timeout": 20, "speculation": False}
    assert (await played.post(surface, wire)).status_code == 200
    (request,) = played.engine.requests
    assert (request.priority, request.speculation) == (-3, False)
    assert request.deadline is not None


@EVERYWHERE
async def test_what_they_are_if_they_are_absent(surface: str) -> None:
    played = complete()
    wire = {**body(surface), "priority": None, "timeout": None, "speculation": None}
    assert (await played.post(surface, wire)).status_code == 200
    (request,) = played.engine.requests
    assert (request.priority, request.deadline, request.speculation) == (0, None, True)


@EVERYWHERE
async def test_the_operator_s_time_limit_is_for_requests_that_name_none(surface: str) -> None:
    played = playing(TokenDelta("", [97, EOS], finish="stop"), request_seconds=1000.0)
    await played.post(surface, body(surface))
    await played.post(surface, {**body(surface), "timeout": 1})
    first, second = (request.deadline for request in played.engine.requests)
    assert first is not None
    assert second is not None
    assert first - second > 900


class Noting(PlainTokenizer):
    """Notes when it began to read."""

    began = 0.0

    def encode(self, text: str, *, add_bos: bool = False, parse_special: bool = True) -> list[int]:
        self.began = self.began or time.monotonic()
        return super().encode(text, add_bos=add_bos, parse_special=parse_special)


@pytest.mark.parametrize("surface", [*SURFACES, "completions", "embeddings"])
async def test_time_begins_before_the_prompt_is_read(surface: str) -> None:
    """Long prompts of others may be read before it."""
    played = Played(tokenizer := Noting())
    played.plan = lambda request: [TokenDelta("", finish="timeout")]
    played.engine._info = replace(played.engine.info, hidden_size=4)
    plain = {"completions": {"prompt": "a"}, "embeddings": {"input": "a"}}
    wire = {"model": "tiny", **plain[surface]} if surface in plain else body(surface)
    tokenizer.began = 0.0  # the provider looked up markers when it was made
    await played.post(surface, {**wire, "timeout": 50})
    (request,) = played.engine.requests
    assert request.deadline is not None
    assert request.deadline - 50 <= tokenizer.began


@EVERYWHERE
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("priority", value) for value in (101, -101, 1.5, "high", True, 10**30)),
        *(("timeout", value) for value in (0, -1, 86_401, 1e308, 10**400, "5", "inf", "nan", True, [])),
        ("speculation", "yes"),
    ],
)
async def test_what_is_out_of_range_is_a_400_that_names_the_field(surface: str, field: str, value: object) -> None:
    played = complete()
    answer = await played.post(surface, {**body(surface), field: value})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    assert played.engine.requests == []


@EVERYWHERE
@BOTH_WAYS
async def test_time_that_is_up_is_told_as_a_limit_and_never_as_a_natural_end(surface: str, stream: bool) -> None:
    played = playing(TokenDelta("", [97, 98]), TokenDelta("", finish="timeout"), request_seconds=60.0)
    seen = await played.ask(surface, stream=stream)
    assert (seen.text, seen.finish) == ("ab", "length")


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("steps", [(), (TokenDelta("", cached_tokens=1),)], ids=["in the queue", "in prefill"])
async def test_time_that_is_up_before_the_first_token_ends_as_a_limit_too(
    surface: str, stream: bool, steps: tuple[TokenDelta, ...]
) -> None:
    played = playing(*steps, TokenDelta("", finish="timeout"), request_seconds=60.0)
    seen = await played.ask(surface, stream=stream)
    assert (seen.text, seen.finish, seen.error) == ("", "length", None)
    assert seen.usage is not None
    prompt, completion, cached, _ = seen.usage
    assert prompt > 1
    assert (completion, cached) == (0, len(steps))


@BOTH_WAYS
@pytest.mark.parametrize("steps", [(), (TokenDelta(""),)], ids=["in the queue", "in prefill"])
@pytest.mark.parametrize("more", [{}, {"n": 2}, {"n": 2, "best_of": 3}, {"echo": True}])
async def test_every_choice_of_a_completion_ends_so(
    stream: bool, steps: tuple[TokenDelta, ...], more: dict[str, Any]
) -> None:
    played = playing(*steps, TokenDelta("", finish="timeout"))
    wire = {"model": "tiny", "prompt": ["ab", "ab"], "timeout": 5, "stream": stream and "best_of" not in more, **more}
    answer = await played.post("completions", wire)
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    if wire["stream"]:
        assert lines[-2:] == ["data: [DONE]", ""]
    frames = [json.loads(line.removeprefix("data: ")) for line in lines if "{" in line]
    choices = [choice for frame in frames for choice in frame["choices"]]
    ends = Counter(choice["index"] for choice in choices if choice["finish_reason"] == "length")
    assert ends == Counter(range(2 * more.get("n", 1)))
    texts = "".join(choice["text"] for choice in choices)
    assert texts == ("abab" if "echo" in more else "")


@BOTH_WAYS
async def test_choices_end_with_what_each_has(stream: bool) -> None:
    played = Played(request_seconds=60.0)
    played.plan = lambda request: [TokenDelta("", [97] * request.choice), TokenDelta("", finish="timeout")]
    answer = await played.post("chat", {**body("chat", stream=stream), "n": 2})
    assert answer.status_code == 200
    assert answer.text.count('"finish_reason":"length"') == 2


async def test_an_embedding_that_is_not_there_in_time_is_a_504() -> None:
    played = playing(TokenDelta("", finish="timeout"))
    played.engine._info = replace(played.engine.info, hidden_size=4)
    wire = {"model": "tiny", "input": "a", "timeout": 5, "priority": 2}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(played.app), base_url="http://test") as client:
        answer = await client.post("/v1/embeddings", json=wire)
    assert answer.status_code == 504
