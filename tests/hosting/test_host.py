"""Requests go to the model they name; models come, go, fail and are lost without harm to the others."""

from __future__ import annotations

import asyncio
import gc
import weakref

import msgspec
import pytest

from millstream.engine.protocol import EngineInfo
from millstream.hosting.host import ModelHost
from millstream.hosting.opening import ModelLoadError
from millstream.ir.deltas import Error
from millstream.ir.errors import ApiError
from millstream.ir.fold import collect
from millstream.ir.provider import EmbeddingProvider, PromptTools
from support.hosted import GIGABYTE, ask, host_of, info, settled, source, turns
from support.waiting import until


async def text_of(host: ModelHost, model: str) -> str:
    stream = await host.stream(ask(model))
    try:
        answer = await collect(stream)
    finally:
        await stream.aclose()
    assert answer.error is None, answer.error
    return answer.choices[0].text


async def refusal(host: ModelHost, model: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await host.stream(ask(model))
    return caught.value


async def test_each_model_answers_what_names_it() -> None:
    host, _ = await host_of("alpha", "beta")
    assert await asyncio.gather(text_of(host, "alpha"), text_of(host, "beta")) == ["alpha", "beta"]
    assert [card.id for card in host.models()] == ["alpha", "beta"]
    assert isinstance(host, EmbeddingProvider)
    assert isinstance(host, PromptTools)
    assert await host.detokenize(await host.tokenize("hello", add_special=False)) == "hello"
    assert "user:hi" in await host.render(ask("beta"))
    assert len(await host.prompt_tokens(ask("beta"))) > 2
    await host.close()


async def test_an_unknown_model_is_told_with_those_that_there_are() -> None:
    host, _ = await host_of("alpha", "beta")
    error = await refusal(host, "gamma")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "alpha, beta" in error.message
    await host.close()
    assert (await refusal(host, "alpha")).status == 404


async def test_a_model_that_is_loading_is_a_503_with_a_time() -> None:
    host, opener = await host_of("alpha")
    opener.loading.clear()
    host.load(source("beta"))
    host.load(source("beta"))  # nothing more happens
    error = await refusal(host, "beta")
    assert (error.status, error.code) == (503, "model_loading")
    assert error.retry_after
    assert [card.id for card in host.models()] == ["alpha"]
    assert await text_of(host, "alpha") == "alpha"
    opener.loading.set()
    await settled(host)
    assert await text_of(host, "beta") == "beta"
    assert [name for name, _ in opener.opened] == ["alpha", "beta"]
    await host.close()


async def test_one_model_is_loaded_at_a_time() -> None:
    host, opener = await host_of()
    for name in ("alpha", "beta", "gamma"):
        host.load(source(name))
    await settled(host)
    assert opener.most_at_once == 1
    assert [card.id for card in host.models()] == ["alpha", "beta", "gamma"]
    await host.close()


@pytest.mark.parametrize(("name", "words"), [("bad", "the file is bad"), ("broken", "internal error")])
async def test_a_load_that_fails_harms_nobody(name: str, words: str) -> None:
    host, _ = await host_of("alpha")
    with pytest.raises(ModelLoadError, match=words):
        await host.open(source(name))
    assert host.failure(name) is not None
    error = await refusal(host, name)
    assert (error.status, words in error.message) == (503, True)
    assert await text_of(host, "alpha") == "alpha"
    assert not host.lost.done()
    host.unload(name)  # it is forgotten
    assert (await refusal(host, name)).status == 404
    await host.close()


async def test_unloading_finishes_what_is_open_and_takes_nothing_new() -> None:
    host, opener = await host_of("alpha", "beta")
    opener.gate.clear()
    running = asyncio.create_task(text_of(host, "alpha"))
    await until(lambda: opener.engines["alpha"].requests)
    host.unload("alpha")
    await turns()
    assert (await refusal(host, "alpha")).status == 404
    assert host.is_unloading("alpha")
    assert opener.engines["alpha"].closed is None
    assert host.default == "beta"
    opener.gate.set()
    assert await running == "alpha"
    await settled(host)
    assert opener.engines["alpha"].closed is not None
    assert [card.id for card in host.models()] == ["beta"]
    await host.close()


async def test_what_does_not_finish_in_time_ends_with_an_error() -> None:
    host, opener = await host_of("alpha", drain_seconds=0.02)
    opener.gate.clear()
    stream = await host.stream(ask("alpha"))
    reading = asyncio.create_task(collect(stream))
    await asyncio.sleep(0)
    host.unload("alpha")
    answer = await reading
    assert isinstance(answer.error, Error)
    await stream.aclose()
    await settled(host)
    assert host.names() == []
    assert not host.lost.done()  # an operator wanted it
    await host.close()


async def test_an_unloaded_model_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    host, opener = await host_of("alpha", "beta")
    assert await text_of(host, "alpha") == "alpha"
    provider = weakref.ref(host.served("alpha").provider)
    opener.engines.clear()
    monkeypatch.setattr(gc, "collect", lambda: 0)  # nor does a circle keep what was frozen at the start
    host.unload("alpha")
    await settled(host)
    await asyncio.sleep(0)
    assert provider() is None
    await host.close()


async def test_a_load_can_be_stopped() -> None:
    host, opener = await host_of("alpha")
    opener.loading.clear()
    host.load(source("beta"))
    await asyncio.sleep(0)
    host.unload("beta")
    await settled(host)
    assert (await refusal(host, "beta")).status == 404
    host.load(source("gamma"))
    host.unload("gamma")  # before it has begun
    await settled(host)
    opener.loading.set()
    await host.open(source("beta"))
    assert opener.at_once == 0
    await host.close()


async def test_a_model_can_be_loaded_while_its_load_is_being_stopped() -> None:
    """The last word counts."""
    host, opener = await host_of("alpha")
    opener.loading.clear()
    host.load(source("beta"))
    await asyncio.sleep(0)
    host.unload("beta")
    assert not host.is_loading("beta")
    host.load(source("beta"))
    assert host.is_loading("beta")
    await turns()
    assert host.is_loading("beta")
    opener.loading.set()
    await settled(host)
    assert await text_of(host, "beta") == "beta"
    assert opener.most_at_once == 1
    await host.close()


async def test_a_lost_engine_ends_nothing_but_its_model() -> None:
    host, opener = await host_of("alpha", "beta")
    opener.engines["alpha"].lost.set_result("killed")
    await turns()
    assert not host.lost.done()
    assert host.default == "alpha"  # what the server was started for
    error = await refusal(host, "alpha")
    assert (error.status, error.code, "killed" in error.message) == (503, "engine_lost", True)
    assert await text_of(host, "beta") == "beta"
    assert [engine.model for engine in host.engines()] == ["alpha", "beta"]
    with pytest.raises(ApiError, match="killed"):
        await host.engines()[0].stats()
    await host.open(source("alpha"))  # an operator may try again
    assert await text_of(host, "alpha") == "alpha"
    assert host.default == "alpha"
    opener.loading.clear()
    opener.engines["alpha"].lost.set_result("killed again")
    await turns()
    host.load(source("alpha"))
    host.unload("alpha")  # and give up
    await settled(host)
    assert host.default == "beta"
    opener.loading.set()
    await host.open(source("alpha"))
    opener.engines["beta"].lost.set_result("killed")
    opener.engines["alpha"].lost.set_result("killed too")
    assert await asyncio.wait_for(host.lost, 60) == "killed too"
    await host.close()


async def test_the_engine_of_a_model_that_is_unloaded_may_be_lost() -> None:
    host, opener = await host_of("alpha")
    opener.gate.clear()
    stream = await host.stream(ask("alpha"))
    host.unload("alpha")
    opener.engines["alpha"].lost.set_result("killed")
    await turns()
    await stream.aclose()
    await settled(host)
    assert not host.lost.done()
    assert host.failure("alpha") is None
    await host.close()


async def test_without_any_model_requests_that_name_none_are_refused() -> None:
    host, _ = await host_of("alpha")
    host.unload("alpha")
    await settled(host)
    assert host.default is None
    with pytest.raises(ApiError) as caught:
        await host.tokenize("hello")
    assert (caught.value.status, caught.value.code) == (503, "no_model")
    await host.open(source("beta"))
    assert host.default == "beta"
    await host.close()


async def test_what_others_were_promised_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.hosted.info", info_with_kv)
    host, opener = await host_of("alpha", "beta")
    (_, first), (_, second) = opener.opened
    assert first == GIGABYTE
    # No process of that id: nothing of its promise has been taken yet.
    assert second < GIGABYTE - (100 << 20)
    await host.close()


def info_with_kv(name: str) -> EngineInfo:
    return msgspec.structs.replace(info(name), kv_bytes=100 << 20)


async def test_closing_ends_loads_and_drains() -> None:
    host, opener = await host_of("alpha", "beta")
    opener.gate.clear()
    stream = await host.stream(ask("alpha"))
    host.unload("alpha")
    opener.loading.clear()
    host.load(source("gamma"))
    await turns()
    await asyncio.wait_for(host.close(), 60)
    await stream.aclose()
    assert all(engine.closed is not None for engine in opener.engines.values())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_requests_are_not_open_any_more() -> None:
    host, opener = await host_of("alpha")
    opener.gate.clear()
    stream = await host.stream(ask("alpha"))
    assert host.served("alpha").open_requests == 1
    await stream.aclose()
    await stream.aclose()
    assert host.served("alpha").open_requests == 0
    with pytest.raises(ApiError):
        await host.stream(msgspec.structs.replace(ask("alpha"), n=0))
    assert host.served("alpha").open_requests == 0
    await host.close()
