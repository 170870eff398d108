"""Stored answers: the interface, and SQLite behind it.

A tenant sees its own answers only. The store is bounded in entries, bytes and age; what was used least recently goes
first, and reading a conversation counts as using all of it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import platformdirs

from millstream.ir.errors import invalid

Item = dict[str, Any]
Kind = Literal["response", "chat.completion"]

T = TypeVar("T")


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``body``: the JSON of the answer as the client got it. ``input`` and ``output``: its items, each with an id
    (none for kinds that have no items). ``previous``: the answer that it continues."""

    id: str
    tenant: str
    kind: Kind
    body: bytes
    previous: str | None = None
    input: tuple[Item, ...] = ()
    output: tuple[Item, ...] = ()


class ItemPage(msgspec.Struct, frozen=True):
    """Some items of a list, and whether there are more in the same direction."""

    items: list[Item]
    more: bool


class AnswerStore(Protocol):
    """Where answers are kept. Every method is for one tenant."""

    async def save(self, answer: StoredAnswer) -> bool:
        """Keep an answer; False if it is larger than the whole store may be."""
        ...

    async def load(self, tenant: str, kind: Kind, answer_id: str) -> bytes | None:
        """The body of an answer."""
        ...

    async def delete(self, tenant: str, kind: Kind, answer_id: str) -> bool:
        """Forget an answer; False if there is none."""
        ...

    async def history(self, tenant: str, answer_id: str) -> list[Item] | str:
        """Items of a response and of those that it continues, oldest first; or the id that is not there.

        Raises:
            ApiError: 400, they are more than a request may begin with.
        """
        ...

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Items of any stored response by their ids."""
        ...

    async def input_items(
        self, tenant: str, answer_id: str, *, limit: int, after: str | None, descending: bool
    ) -> ItemPage | None:
        """A page of a response's own input; None if there is no such response. Raises `KeyError` if ``after`` is none
        of its items."""
        ...

    async def close(self) -> None: ...


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds``: how long an answer is kept after its last use. ``chain``: how many answers one conversation may
    have, ``history`` how many bytes of them a new one may begin with."""

    entries: int = 20_000
    bytes: int = 512 * 1024 * 1024
    seconds: float = 30 * 24 * 3600.0
    chain: int = 1_000
    history: int = 64 * 1024 * 1024


_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    tenant TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, previous TEXT,
    size INTEGER NOT NULL, used REAL NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_used ON answers (used, size); -- eviction reads this alone, no bodies
CREATE TABLE IF NOT EXISTS items (
    tenant TEXT NOT NULL, answer TEXT NOT NULL, place INTEGER NOT NULL, is_input INTEGER NOT NULL,
    id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (tenant, answer, place),
    FOREIGN KEY (tenant, answer) REFERENCES answers (tenant, id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_id ON items (tenant, id);
"""

_CHAIN = """
WITH RECURSIVE chain (id, previous, size, depth) AS (
    SELECT id, previous, size, 0 FROM answers WHERE tenant = :tenant AND id = :id AND kind = 'response'
    UNION ALL
    SELECT answers.id, answers.previous, answers.size, depth + 1 FROM answers JOIN chain ON answers.id = chain.previous
    WHERE answers.tenant = :tenant AND answers.kind = 'response' AND depth < :limit
)
SELECT id, previous, size FROM chain ORDER BY depth
"""


SCHEMA_VERSION = 1


def default_store_path() -> Path:
    """Where a server keeps its answers: ``$MILLSTREAM_HOME/answers.sqlite``, else the user's state folder."""
    if home := os.environ.get("MILLSTREAM_HOME"):
        return Path(home).expanduser() / "answers.sqlite"
    return platformdirs.user_state_path("millstream") / "answers.sqlite"


class SqliteStore:
    """An `AnswerStore` in one SQLite file, or in memory. All work is done in one thread of its own."""

    def __init__(
        self,
        path: Path | None = None,
        limits: StoreLimits = StoreLimits(),  # noqa: B008  (immutable)
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``path`` None: in memory, gone with the process. The file is opened at first use."""
        self._path = path
        self._limits = limits
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-store")

    async def save(self, answer: StoredAnswer) -> bool:
        return await self._run(lambda db: self._save(db, answer))

    async def load(self, tenant: str, kind: Kind, answer_id: str) -> bytes | None:
        return await self._run(lambda db: self._load(db, tenant, kind, answer_id))

    async def delete(self, tenant: str, kind: Kind, answer_id: str) -> bool:
        query = "DELETE FROM answers WHERE tenant = ? AND id = ? AND kind = ? AND used >= ?"
        return await self._run(lambda db: db.execute(query, (tenant, answer_id, kind, self._oldest())).rowcount > 0)

    async def history(self, tenant: str, answer_id: str) -> list[Item] | str:
        return await self._run(lambda db: self._history(db, tenant, answer_id))

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> dict[str, Item]:
        return await self._run(lambda db: self._find_items(db, tenant, item_ids)) if item_ids else {}

    async def input_items(
        self, tenant: str, answer_id: str, *, limit: int, after: str | None, descending: bool
    ) -> ItemPage | None:
        return await self._run(lambda db: self._input_items(db, tenant, answer_id, limit, after, descending))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # Shielded: a client that leaves must not stop a transaction in the middle of its bookkeeping.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work))

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = _open(self._path)
        with self._connection:
            return work(self._connection)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _oldest(self) -> float:
        return self._clock() - self._limits.seconds

    def _save(self, db: sqlite3.Connection, answer: StoredAnswer) -> bool:
        rows = [
            (answer.tenant, answer.id, place, is_input, item["id"], msgspec.json.encode(item))
            for place, (is_input, item) in enumerate(
                [*((True, item) for item in answer.input), *((False, item) for item in answer.output)]
            )
        ]
        size = len(answer.body) + sum(len(row[5]) + 64 for row in rows) + 256
        if size > self._limits.bytes:
            return False
        db.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)",
            (answer.tenant, answer.id, answer.kind, answer.previous, size, self._clock(), answer.body),
        )
        db.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._evict(db)
        return True

    def _evict(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM answers WHERE used < ?", (self._oldest(),))
        entries, size = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM answers").fetchone()
        if entries <= self._limits.entries and size <= self._limits.bytes:
            return
        doomed = []
        for tenant, answer, its_size in db.execute("SELECT tenant, id, size FROM answers ORDER BY used"):
            if entries <= self._limits.entries and size <= self._limits.bytes:
                break
            doomed.append((tenant, answer))
            entries, size = entries - 1, size - its_size
        db.executemany("DELETE FROM answers WHERE tenant = ? AND id = ?", doomed)

    def _load(self, db: sqlite3.Connection, tenant: str, kind: Kind, answer_id: str) -> bytes | None:
        row = db.execute(
            "SELECT body FROM answers WHERE tenant = ? AND id = ? AND kind = ? AND used >= ?",
            (tenant, answer_id, kind, self._oldest()),
        ).fetchone()
        if row is None:
            return None
        self._touch(db, tenant, [answer_id])
        return bytes(row[0])

    def _history(self, db: sqlite3.Connection, tenant: str, answer_id: str) -> list[Item] | str:
        db.execute("DELETE FROM answers WHERE used < ?", (self._oldest(),))
        chain = db.execute(_CHAIN, {"tenant": tenant, "id": answer_id, "limit": self._limits.chain}).fetchall()
        if not chain:
            return answer_id
        if chain[-1][1] is not None:
            return str(chain[-1][1])
        if sum(row[2] for row in chain) > self._limits.history:
            raise invalid(
                f"The stored conversation has more than {self._limits.history} bytes, too many to go on with.",
                param="previous_response_id",
                code="context_length_exceeded",
            )
        answers = [row[0] for row in reversed(chain)]
        self._touch(db, tenant, answers)
        query = "SELECT body FROM items WHERE tenant = ? AND answer = ? ORDER BY place"
        return [msgspec.json.decode(body) for answer in answers for (body,) in db.execute(query, (tenant, answer))]

    def _find_items(self, db: sqlite3.Connection, tenant: str, item_ids: Sequence[str]) -> dict[str, Item]:
        found = {}
        for item_id in item_ids:
            row = db.execute(
                "SELECT items.body FROM items JOIN answers ON answers.tenant = items.tenant AND answers.id = answer "
                "WHERE items.tenant = ? AND items.id = ? AND used >= ? ORDER BY used DESC LIMIT 1",
                (tenant, item_id, self._oldest()),
            ).fetchone()
            if row is not None:
                found[item_id] = msgspec.json.decode(row[0])
        return found

    def _input_items(
        self, db: sqlite3.Connection, tenant: str, answer_id: str, limit: int, after: str | None, descending: bool
    ) -> ItemPage | None:
        if self._load(db, tenant, "response", answer_id) is None:
            return None
        mine = "FROM items WHERE tenant = ? AND answer = ? AND is_input"
        where: list[Any] = [tenant, answer_id]
        beyond = ""
        if after is not None:
            row = db.execute(f"SELECT place {mine} AND id = ?", (*where, after)).fetchone()
            if row is None:
                raise KeyError(after)
            beyond = f"AND place {'<' if descending else '>'} ?"
            where.append(row[0])
        order = "DESC" if descending else "ASC"
        rows = db.execute(f"SELECT body {mine} {beyond} ORDER BY place {order} LIMIT ?", (*where, limit + 1)).fetchall()
        return ItemPage([msgspec.json.decode(body) for (body,) in rows[:limit]], len(rows) > limit)

    def _touch(self, db: sqlite3.Connection, tenant: str, answers: Sequence[str]) -> None:
        now = self._clock()
        db.executemany(
            "UPDATE answers SET used = ? WHERE tenant = ? AND id = ?", [(now, tenant, answer) for answer in answers]
        )


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # conversations are private
    # One thread uses it; the flag lets another close it.
    connection = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA_VERSION):
        connection.close()
        raise sqlite3.DatabaseError(f"{path} was written by another version of Millstream (schema {version})")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.executescript(_SCHEMA)
    return connection
