"""The store of answers in one SQLite file, or in memory."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import platformdirs

from millstream.ir.errors import ApiError, invalid
from millstream.server.store import AnswerPage, Item, ItemPage, Kind, PageQuery, StoredAnswer, StoreLimits

T = TypeVar("T")

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
CREATE TABLE IF NOT EXISTS listings (
    tenant TEXT NOT NULL, answer TEXT NOT NULL, created REAL NOT NULL, model TEXT NOT NULL, metadata TEXT NOT NULL,
    PRIMARY KEY (tenant, answer),
    FOREIGN KEY (tenant, answer) REFERENCES answers (tenant, id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS listings_created ON listings (tenant, created, answer);
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

    async def page(
        self, tenant: str, kind: Kind, query: PageQuery, *, model: str | None = None, metadata: Mapping[str, str]
    ) -> AnswerPage:
        return await self._run(lambda db: self._page(db, tenant, kind, query, model, metadata))

    async def relabel(self, tenant: str, kind: Kind, answer_id: str, metadata: Mapping[str, str]) -> bytes | None:
        return await self._run(lambda db: self._relabel(db, tenant, kind, answer_id, metadata))

    async def history(self, tenant: str, answer_id: str) -> list[Item] | str:
        return await self._run(lambda db: self._history(db, tenant, answer_id))

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> dict[str, Item]:
        return await self._run(lambda db: self._find_items(db, tenant, item_ids)) if item_ids else {}

    async def input_items(self, tenant: str, kind: Kind, answer_id: str, query: PageQuery) -> ItemPage | None:
        return await self._run(lambda db: self._input_items(db, tenant, kind, answer_id, query))

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
        if answer.listing is not None:
            listing = (answer.listing.model, _json_text(answer.listing.metadata))
            db.execute(
                "INSERT INTO listings VALUES (?, ?, ?, ?, ?)", (answer.tenant, answer.id, self._clock(), *listing)
            )
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
                "WHERE items.tenant = ? AND items.id = ? AND kind = 'response' AND used >= ? "
                "ORDER BY used DESC LIMIT 1",
                (tenant, item_id, self._oldest()),
            ).fetchone()
            if row is not None:
                found[item_id] = msgspec.json.decode(row[0])
        return found

    def _input_items(
        self, db: sqlite3.Connection, tenant: str, kind: Kind, answer_id: str, query: PageQuery
    ) -> ItemPage | None:
        if self._load(db, tenant, kind, answer_id) is None:
            return None
        mine = "FROM items WHERE tenant = ? AND answer = ? AND is_input"
        where: list[Any] = [tenant, answer_id]
        beyond = ""
        if query.after is not None:
            row = db.execute(f"SELECT place {mine} AND id = ?", (*where, query.after)).fetchone()
            if row is None:
                raise _unknown_after(query.after)
            beyond = f"AND place {_beyond(query)} ?"
            where.append(row[0])
        statement = f"SELECT body {mine} {beyond} ORDER BY place {_order(query)} LIMIT ?"
        rows = db.execute(statement, (*where, query.limit + 1)).fetchall()
        return ItemPage([msgspec.json.decode(body) for (body,) in rows[: query.limit]], len(rows) > query.limit)

    def _page(
        self,
        db: sqlite3.Connection,
        tenant: str,
        kind: Kind,
        query: PageQuery,
        model: str | None,
        metadata: Mapping[str, str],
    ) -> AnswerPage:
        mine = (
            "FROM listings JOIN answers ON answers.tenant = listings.tenant AND answers.id = answer "
            "WHERE listings.tenant = ? AND kind = ? AND used >= ?"
        )
        where: list[Any] = [tenant, kind, self._oldest()]
        chosen = list(where)
        conditions = ""
        if query.after is not None:
            row = db.execute(f"SELECT created {mine} AND answer = ?", (*where, query.after)).fetchone()
            if row is None:
                raise _unknown_after(query.after)
            conditions += f" AND (created, answer) {_beyond(query)} (?, ?)"
            chosen += [row[0], query.after]
        if model is not None:
            conditions += " AND model = ?"
            chosen.append(model)
        for pair in metadata.items():
            conditions += " AND EXISTS (SELECT 1 FROM json_each(metadata) WHERE key = ? AND value = ?)"
            chosen += pair
        order = _order(query)
        statement = f"SELECT answer, body {mine}{conditions} ORDER BY created {order}, answer {order} LIMIT ?"
        answers: list[tuple[str, bytes]] = []
        size = 0
        for name, body in db.execute(statement, (*chosen, query.limit + 1)):
            size += len(body)
            if len(answers) == query.limit or (answers and size > self._limits.page):
                return AnswerPage(answers, True)
            answers.append((name, bytes(body)))
        return AnswerPage(answers, False)

    def _relabel(
        self, db: sqlite3.Connection, tenant: str, kind: Kind, answer_id: str, metadata: Mapping[str, str]
    ) -> bytes | None:
        old = self._load(db, tenant, kind, answer_id)
        if old is None:
            return None
        members = msgspec.json.decode(old, type=dict[str, msgspec.Raw])
        body = msgspec.json.encode({**members, "metadata": metadata})
        key = (tenant, answer_id)
        db.execute("UPDATE listings SET metadata = ? WHERE tenant = ? AND answer = ?", (_json_text(metadata), *key))
        grown = len(body) - len(old)
        db.execute("UPDATE answers SET body = ?, size = size + ? WHERE tenant = ? AND id = ?", (body, grown, *key))
        self._evict(db)
        return body

    def _touch(self, db: sqlite3.Connection, tenant: str, answers: Sequence[str]) -> None:
        now = self._clock()
        db.executemany(
            "UPDATE answers SET used = ? WHERE tenant = ? AND id = ?", [(now, tenant, answer) for answer in answers]
        )


def _beyond(query: PageQuery) -> str:
    return "<" if query.descending else ">"


def _order(query: PageQuery) -> str:
    return "DESC" if query.descending else "ASC"


def _unknown_after(item_id: str) -> ApiError:
    return invalid(f"after: there is no {item_id[:128]!r} in this list.", param="after")


def _json_text(value: Mapping[str, str]) -> str:
    return msgspec.json.encode(value).decode()


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
