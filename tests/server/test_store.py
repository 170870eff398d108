"""The store of answers: what is kept, for whom, for how long."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millstream.ir.errors import ApiError
from millstream.server.sqlite_store import SqliteStore, default_store_path
from millstream.server.store import AnswerStore, Item, Listing, PageQuery, StoredAnswer, StoreLimits


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
    assert await store.input_items("third", "response", "a", PageQuery(1)) is None
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
        page = await store.input_items("me", "response", "a", PageQuery(limit, after, descending))
        assert page is not None
        return [each["id"] for each in page.items], page.more

    assert await ids(2, None, True) == (["i4", "i3"], True)
    assert await ids(9, "i3", True) == (["i2", "i1", "i0"], False)
    assert await ids(2, "i0", False) == (["i1", "i2"], True)
    assert await ids(2, "i2", False) == (["i3", "i4"], False)
    with pytest.raises(ApiError, match="after"):
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


def completion(name: str, *, tenant: str = "me", model: str = "m", size: int = 0, **metadata: str) -> StoredAnswer:
    body = msgspec.json.encode({"id": name, "metadata": metadata, "pad": "x" * size})
    return StoredAnswer(
        id=name,
        tenant=tenant,
        kind="chat.completion",
        body=body,
        input=(item(f"{name}-0"),),
        listing=Listing(model, metadata),
    )


@pytest.fixture
async def shelf(clock: Clock) -> AsyncIterator[SqliteStore]:
    """Room for many answers, little for a page."""
    store = SqliteStore(limits=StoreLimits(seconds=1000, page=2000), clock=clock)
    yield store
    await store.close()


async def listed(store: SqliteStore, query: PageQuery, tenant: str = "me", **chosen: Any) -> tuple[list[str], bool]:
    page = await store.page(tenant, "chat.completion", query, **{"metadata": {}, **chosen})
    return [name for name, _ in page.answers], page.more


async def test_lists_are_in_order_and_of_one_tenant_and_kind(shelf: SqliteStore) -> None:
    for name in ("c", "a", "b"):
        await shelf.save(completion(name))
    await shelf.save(completion("d", tenant="other"))
    await shelf.save(answer("r"))
    assert await listed(shelf, PageQuery(9)) == (["c", "a", "b"], False)
    assert await listed(shelf, PageQuery(9, descending=True)) == (["b", "a", "c"], False)
    assert await listed(shelf, PageQuery(2)) == (["c", "a"], True)
    assert await listed(shelf, PageQuery(2, after="a")) == (["b"], False)
    assert await listed(shelf, PageQuery(2, after="a", descending=True)) == (["c"], False)
    assert await listed(shelf, PageQuery(9), tenant="third") == ([], False)
    for stranger in ("d", "r", "none"):
        with pytest.raises(ApiError) as caught:
            await listed(shelf, PageQuery(2, after=stranger))
        assert (caught.value.status, caught.value.param) == (400, "after")


async def test_answers_of_one_moment_are_paged_without_a_gap(shelf: SqliteStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(Clock, "__call__", lambda self: 7.0)
    names = [f"a{n}" for n in range(7)]
    for name in names:
        await shelf.save(completion(name))
    for descending in (False, True):
        seen: list[str] = []
        more = True
        while more:
            page, more = await listed(shelf, PageQuery(2, seen[-1] if seen else None, descending))
            seen += page
        assert seen == (names[::-1] if descending else names)


async def test_lists_choose_by_model_and_all_pairs(shelf: SqliteStore) -> None:
    await shelf.save(completion("a", team="x", run="1"))
    await shelf.save(completion("b", team="x", run="2"))
    await shelf.save(completion("c", team="x", run="1", model="other"))
    assert (await listed(shelf, PageQuery(9), metadata={"team": "x"}))[0] == ["a", "b", "c"]
    assert (await listed(shelf, PageQuery(9), metadata={"team": "x", "run": "1"}))[0] == ["a", "c"]
    assert (await listed(shelf, PageQuery(9), metadata={"run": "1"}, model="m"))[0] == ["a"]
    assert (await listed(shelf, PageQuery(9), metadata={"x": "team"}))[0] == []
    assert await shelf.relabel("me", "chat.completion", "b", {"run": "1", "é'": '"'}) is not None
    assert (await listed(shelf, PageQuery(9), metadata={"run": "1"}))[0] == ["a", "b", "c"]
    assert (await listed(shelf, PageQuery(9), metadata={"é'": '"'}))[0] == ["b"]
    assert (await listed(shelf, PageQuery(9), metadata={"team": "x"}))[0] == ["a", "c"]


async def test_relabelled_bodies(shelf: SqliteStore) -> None:
    await shelf.save(completion("a", old="1"))
    changed = await shelf.relabel("me", "chat.completion", "a", {"new": "2"})
    assert changed == await shelf.load("me", "chat.completion", "a")
    assert msgspec.json.decode(changed or b"") == {"id": "a", "metadata": {"new": "2"}, "pad": ""}
    assert await shelf.relabel("other", "chat.completion", "a", {}) is None
    assert await shelf.relabel("me", "response", "a", {}) is None


async def test_a_page_ends_early_where_bodies_are_large(shelf: SqliteStore) -> None:
    for name in ("a", "b", "c"):
        await shelf.save(completion(name, size=1500))
    assert await listed(shelf, PageQuery(9)) == (["a"], True)
    assert await listed(shelf, PageQuery(9, after="b")) == (["c"], False)


async def test_what_is_gone_is_not_listed(shelf: SqliteStore, clock: Clock) -> None:
    await shelf.save(completion("a"))
    await shelf.save(completion("b"))
    await shelf.delete("me", "chat.completion", "a")
    assert await listed(shelf, PageQuery(9)) == (["b"], False)
    clock.now += 2000
    assert await listed(shelf, PageQuery(9)) == ([], False)


async def test_messages_of_completions_are_no_items_of_responses(shelf: SqliteStore) -> None:
    await shelf.save(completion("a"))
    assert await shelf.find_items("me", ["a-0"]) == {}
    page = await shelf.input_items("me", "chat.completion", "a", PageQuery(9))
    assert page is not None
    assert page.items == [item("a-0")]
    assert await shelf.input_items("me", "response", "a", PageQuery(9)) is None


async def test_a_store_from_before_there_were_lists_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first = SqliteStore(path)
    await first.save(answer("a"))
    await first.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE listings")
    second = SqliteStore(path)
    await second.save(completion("b"))
    assert await listed(second, PageQuery(9)) == (["b"], False)
    assert await second.load("me", "response", "a") is not None
    await second.close()
