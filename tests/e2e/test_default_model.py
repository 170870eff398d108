"""The main job: the default model behind the real command, seen through the official client."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from millstream.lint.openai_stream import Expectation, lint_chat
from support.real_models import DEFAULT_MODEL, real_model
from support.served import Served, serve
from support.waiting import wait_until

MODEL = "smollm2-135m-instruct"
GENERATED = f'millstream_generated_tokens_total{{model_name="{MODEL}"}}'
RESTARTS = f'millstream_engine_restarts_total{{model_name="{MODEL}"}}'
RESUMED = f'millstream_resumed_streams_total{{model_name="{MODEL}"}}'
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--max-batch", "16")


async def ask(client: openai.AsyncOpenAI, prompt: str = "Tell me about rivers.", **options: object) -> ChatCompletion:
    messages = [{"role": "user", "content": prompt}]
    answer = await client.chat.completions.create(model=MODEL, messages=messages, **options)  # type: ignore[call-overload]
    assert isinstance(answer, ChatCompletion)
    return answer


async def stream_text(client: openai.AsyncOpenAI, prompt: str, **options: object) -> str:
    messages = [{"role": "user", "content": prompt}]
    stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True, **options)  # type: ignore[call-overload]
    text = ""
    async for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    return text


async def test_the_capital_of_france_is_streamed(client: openai.AsyncOpenAI) -> None:
    assert "Paris" in await stream_text(client, "What is the capital of France?", temperature=0)


def test_the_wire_keeps_its_rules(served: Served) -> None:
    body = {
        "model": MODEL,
        "messages": CAPITAL,
        "stream": True,
        "n": 2,
        "max_tokens": 12,
        "logprobs": True,
        "top_logprobs": 2,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    raw = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60, trust_env=False).content
    assert lint_chat(raw, Expectation(choices=2, usage=True)) == []
    assert raw.endswith(b"data: [DONE]\n\n")


async def test_sixteen_streams_together_say_what_each_says_alone(client: openai.AsyncOpenAI) -> None:
    prompts = [(f"Tell me a fact about the number {i}.", {"seed": i, "temperature": 0.8 * (i % 2)}) for i in range(16)]
    together = await asyncio.gather(*(stream_text(client, p, max_tokens=12, **o) for p, o in prompts))
    alone = [await stream_text(client, p, max_tokens=12, **o) for p, o in prompts]
    assert list(together) == alone
    assert len(set(together)) == 16


async def test_a_client_that_leaves_frees_its_place(served: Served, client: openai.AsyncOpenAI) -> None:
    before = served.metric(GENERATED)
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=CAPITAL,  # type: ignore[arg-type]
        stream=True,
        max_tokens=4000,
        extra_body={"ignore_eos": True},
    )
    await anext(aiter(stream))
    assert served.health().json()["running"] == 1
    await stream.close()
    assert served.wait_idle()["kv_blocks_used"] == 0
    assert served.metric(GENERATED) - before < 4000, "it was written to its end"


async def test_more_streams_than_places_wait_their_turn(served: Served, client: openai.AsyncOpenAI) -> None:
    endless: dict[str, object] = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    first = [asyncio.create_task(stream_text(client, f"Count to {i}.", **endless)) for i in range(16)]
    await counted(served, running=16, waiting=0)
    later = [asyncio.create_task(stream_text(client, f"Count from {i}.", max_tokens=8)) for i in range(4)]
    await counted(served, running=16, waiting=4)
    for task in first:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)
    assert all(await asyncio.gather(*later))


async def counted(served: Served, **counts: int) -> None:
    """Wait until the server tells these counts."""

    def told() -> bool:
        return counts.items() <= served.health().json().items()

    await asyncio.to_thread(wait_until, told, f"never {counts}")


async def test_seeds_repeat_and_choices_differ(client: openai.AsyncOpenAI) -> None:
    first, second = [await ask(client, n=3, seed=7, max_tokens=12) for _ in range(2)]
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) == 3
    assert first.usage is not None
    assert first.usage.completion_tokens == 36


async def test_logprobs_are_those_of_the_tokens(client: openai.AsyncOpenAI) -> None:
    answer = await ask(client, "What is the capital of France?", temperature=0, logprobs=True, top_logprobs=5)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert "".join(entry.token for entry in content).startswith(choice.message.content or "?")
    for entry in content:
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the best"
        assert entry.top_logprobs[0].logprob == entry.logprob
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1 + 1e-5
        assert entry.bytes == list(entry.token.encode())


async def test_a_stop_string_ends_the_answer_before_it(client: openai.AsyncOpenAI) -> None:
    whole = (await ask(client, temperature=0, max_tokens=20)).choices[0].message.content or ""
    stop = whole[30:37]
    answer = await ask(client, temperature=0, max_tokens=20, stop=[stop])
    assert answer.choices[0].message.content == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


async def test_length_is_told_as_length(client: openai.AsyncOpenAI) -> None:
    answer = await ask(client, max_tokens=5, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


async def test_min_tokens_keeps_the_answer_going(client: openai.AsyncOpenAI) -> None:
    plain = await ask(client, "Say OK.", temperature=0, max_tokens=30)
    longer = await ask(client, "Say OK.", temperature=0, max_tokens=30, extra_body={"min_tokens": 25})
    assert plain.usage is not None
    assert longer.usage is not None
    assert longer.usage.completion_tokens >= max(25, plain.usage.completion_tokens)


async def test_logit_bias_forces_a_token(client: openai.AsyncOpenAI) -> None:
    banned = await ask(client, "What is the capital of France?", temperature=0, max_tokens=1)
    token = banned.choices[0].message.content
    ids = await ask(
        client, "What is the capital of France?", temperature=0, max_tokens=1, extra_body={"return_token_ids": True}
    )
    (first,) = ids.choices[0].token_ids  # type: ignore[attr-defined]
    other = await ask(
        client, "What is the capital of France?", temperature=0, max_tokens=1, logit_bias={str(first): -100}
    )
    assert other.choices[0].message.content != token


async def test_a_prompt_beyond_the_context_names_both_numbers(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, "word " * 9000)
    assert caught.value.code == "context_length_exceeded"
    assert "8192" in caught.value.message
    assert any(int(number) > 9000 for number in caught.value.message.replace(",", "").split() if number.isdigit())


async def test_a_limit_beyond_the_context_is_no_error(client: openai.AsyncOpenAI) -> None:
    answer = await ask(client, "What is the capital of France?", temperature=0, max_tokens=100_000)
    assert answer.choices[0].finish_reason == "stop"


async def test_an_unknown_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-nope", messages=CAPITAL)  # type: ignore[arg-type]
    assert caught.value.code == "model_not_found"


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL


async def test_completions_continue_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="One, two, three, four,", max_tokens=6, temperature=0)
    assert "five" in answer.choices[0].text


async def test_streams_outlive_the_engine_process(served: Served, client: openai.AsyncOpenAI) -> None:
    prompts = [f"Tell me a story about the number {i}." for i in range(4)]
    kinds = [{"seed": i, "temperature": 0.8 * (i % 2), "max_tokens": 100} for i in range(4)]

    def ask() -> list[asyncio.Task[str]]:
        more = {"extra_body": {"ignore_eos": True}}
        asked = [stream_text(client, prompt, **kind, **more) for prompt, kind in zip(prompts, kinds, strict=True)]
        return [asyncio.create_task(each) for each in asked]

    undisturbed = await asyncio.gather(*ask())
    for restarts in range(1, 11):
        steps, resumed = await asyncio.to_thread(lambda: (served.health().json()["steps"], served.metric(RESUMED)))
        killed = served.engine_pid()
        tasks = ask()
        await asyncio.to_thread(wait_until, partial(all_begun, served, steps, tasks))
        os.kill(killed, signal.SIGKILL)
        assert await asyncio.gather(*tasks) == undisturbed
        await asyncio.to_thread(served.wait_idle)
        assert served.engine_pid() != killed
        assert await asyncio.to_thread(served.metric, RESTARTS) == restarts
        if await asyncio.to_thread(served.metric, RESUMED) == resumed + 4:
            return
    raise AssertionError("the four were never killed in their midst, or not resumed")


def all_begun(served: Served, steps: int, tasks: list[asyncio.Task[str]]) -> bool:
    """Whether four sequences run that have begun, some steps beyond those so far; or it is too late for that."""
    health = served.health().json()
    return bool(health["running"] == 4 and health["steps"] >= steps + 6) or any(task.done() for task in tasks)


def test_an_engine_that_cannot_be_started_again_ends_the_server(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.symlink_to(real_model(DEFAULT_MODEL).resolve())
    with serve(model) as server:
        body = {"model": "model", "messages": CAPITAL, "stream": True, "ignore_eos": True, "max_tokens": 4000}
        with httpx.stream(
            "POST", f"{server.url}/v1/chat/completions", json=body, timeout=60, trust_env=False
        ) as answer:
            lines = answer.iter_lines()
            while "content" not in next(lines):
                pass
            model.unlink()
            os.kill(server.engine_pid(), signal.SIGKILL)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"error"' in rest[-2]
        assert 'finish_reason":"' not in "".join(rest), "a broken answer is never reported as finished"
        assert server.process.wait(30) == 1


def test_ctrl_c_lets_open_streams_end_and_exits_zero() -> None:
    with serve(real_model(DEFAULT_MODEL)) as server:
        body = {"model": MODEL, "messages": CAPITAL, "stream": True, "ignore_eos": True, "max_tokens": 60}
        with httpx.stream(
            "POST", f"{server.url}/v1/chat/completions", json=body, timeout=60, trust_env=False
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in rest[-2]
        until = time.monotonic() + 20
        while server.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert server.process.returncode == 0
