"""The store of answers: what is kept, for whom, for how long."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millstream.ir.errors import ApiError
from millstream.server.store import (
    AnswerStore,
    Item,
    SqliteStore,
    StoredAnswer,
    StoreLimits,
    default_store_path,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    path = tmp_path / "deep" / "store.sqlite" if request.param == "file" else None
    store = SqliteStore(path, StoreLimits(entries=3, bytes=4000, seconds=100, chain=3), clock=clock)
    yield store
    await store.close()


def item(name: str) -> Item:
    return {"id": name, "type": "message", "text": name}


def answer(name: str, previous: str | None = None, tenant: str = "me", size: int = 10) -> StoredAnswer:
    return StoredAnswer(
        id=name,
        tenant=tenant,
        kind="response",
        body=b"x" * size,
        previous=previous,
        input=(item(f"{name}-in"),),
        output=(item(f"{name}-out"),),
    )


async def test_saved_loaded_deleted(store: AnswerStore) -> None:
    assert await store.save(answer("a"))
    assert await store.load("me", "response", "a") == b"x" * 10
    assert await store.delete("me", "response", "a")
    assert not await store.delete("me", "response", "a")
    assert await store.load("me", "response", "a") is None
    assert await store.find_items("me", ["a-in"]) == {}


async def test_kinds_and_tenants_do_not_meet(store: AnswerStore) -> None:
    await store.save(answer("a"))
    await store.save(answer("a", tenant="other", size=20))
    assert await store.load("me", "chat.completion", "a") is None
    assert not await store.delete("me", "chat.completion", "a")
    assert await store.load("third", "response", "a") is None
    assert await store.history("third", "a") == "a"
    assert await store.find_items("third", ["a-in"]) == {}
    assert await store.input_items("third", "a", limit=1, after=None, descending=True) is None
    assert await store.delete("other", "response", "a")
    assert await store.load("me", "response", "a") == b"x" * 10


async def test_history_is_the_whole_chain(store: AnswerStore) -> None:
    await store.save(answer("a"))
    await store.save(answer("b", "a"))
    await store.save(answer("c", "b"))
    history = await store.history("me", "c")
    assert [each["id"] for each in history] == ["a-in", "a-out", "b-in", "b-out", "c-in", "c-out"]
    assert await store.history("me", "nothing") == "nothing"
    await store.delete("me", "response", "a")
    assert await store.history("me", "c") == "a"


async def test_a_history_is_bounded() -> None:
    small = SqliteStore(limits=StoreLimits(history=1000))
    await small.save(answer("a"))
    assert isinstance(await small.history("me", "a"), list)
    await small.save(answer("b", "a", size=900))
    with pytest.raises(ApiError) as caught:
        await small.history("me", "b")
    assert caught.value.code == "context_length_exceeded"
    await small.close()


async def test_a_chain_is_not_continued_across_tenants(store: AnswerStore) -> None:
    await store.save(answer("a", tenant="other"))
    await store.save(answer("b", "a"))
    assert await store.history("me", "b") == "a"


async def test_the_least_used_goes_first(store: AnswerStore) -> None:
    for name in ("a", "b", "c"):
        await store.save(answer(name))
    await store.load("me", "response", "a")
    await store.save(answer("d"))
    found = [name for name in "abcd" if await store.load("me", "response", name)]
    assert found == ["a", "c", "d"]


async def test_using_a_chain_keeps_all_of_it(store: AnswerStore) -> None:
    await store.save(answer("a"))
    await store.save(answer("b", "a"))
    await store.save(answer("c"))
    await store.history("me", "b")
    await store.save(answer("d"))
    assert isinstance(await store.history("me", "b"), list)
    assert await store.load("me", "response", "c") is None


async def test_bytes_are_bounded(store: AnswerStore) -> None:
    assert not await store.save(answer("huge", size=5000))
    assert await store.load("me", "response", "huge") is None
    await store.save(answer("a", size=1500))
    await store.save(answer("b", size=1500))
    await store.save(answer("c", size=1500))
    assert await store.load("me", "response", "a") is None
    assert await store.load("me", "response", "c") is not None


async def test_what_is_not_used_expires(store: AnswerStore, clock: Clock) -> None:
    await store.save(answer("a"))
    clock.now += 200
    assert await store.load("me", "response", "a") is None
    assert await store.history("me", "a") == "a"
    assert await store.find_items("me", ["a-in"]) == {}


async def test_pages_of_input(store: AnswerStore) -> None:
    many = StoredAnswer(
        id="a",
        tenant="me",
        kind="response",
        body=b"",
        input=tuple(item(f"i{n}") for n in range(5)),
        output=(item("o"),),
    )
    await store.save(many)

    async def ids(limit: int, after: str | None, descending: bool) -> tuple[list[str], bool]:
        page = await store.input_items("me", "a", limit=limit, after=after, descending=descending)
        assert page is not None
        return [each["id"] for each in page.items], page.more

    assert await ids(2, None, True) == (["i4", "i3"], True)
    assert await ids(9, "i3", True) == (["i2", "i1", "i0"], False)
    assert await ids(2, "i0", False) == (["i1", "i2"], True)
    assert await ids(2, "i2", False) == (["i3", "i4"], False)
    with pytest.raises(KeyError):
        await ids(2, "o", False)


async def test_items_are_found(store: AnswerStore) -> None:
    await store.save(answer("a"))
    assert await store.find_items("me", ["a-in", "a-out", "none"]) == {"a-in": item("a-in"), "a-out": item("a-out")}


async def test_many_at_once(store: AnswerStore) -> None:
    await asyncio.gather(*(store.save(answer(f"a{n}")) for n in range(20)))
    found = [n for n in range(20) if await store.load("me", "response", f"a{n}")]
    assert len(found) == 3


async def test_a_file_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first = SqliteStore(path)
    await first.save(answer("a"))
    await first.close()
    second = SqliteStore(path)
    assert await second.load("me", "response", "a") == b"x" * 10
    await second.close()
    assert path.stat().st_mode & 0o077 == 0


async def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    store = SqliteStore(path)
    with pytest.raises(sqlite3.DatabaseError, match="another version"):
        await store.load("me", "response", "a")
    await store.close()


def test_where_answers_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    assert default_store_path() == tmp_path / "answers.sqlite"
