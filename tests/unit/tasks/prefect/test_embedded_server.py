"""Writers of the home's own Prefect server queue: none is refused because another one wrote after it had read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from tasks.prefect.embedded_server import OwnServerOnly, QueuedSqlite, policy

COUNT, ADD = sa.text("SELECT count(*) FROM t"), sa.text("INSERT INTO t VALUES (1)")


async def opened(kind: type[AioSqliteConfiguration], folder: Path) -> tuple[Any, Any]:
    """A database with an empty table, and its engine."""
    database = kind(connection_url=f"sqlite+aiosqlite:///{folder / 'one.db'}")
    engine = await database.engine()
    async with engine.begin() as connection:
        await connection.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    return database, engine


async def overtaken(kind: type[AioSqliteConfiguration], folder: Path) -> int:
    """One reads and writes, another writes in between; how many rows there are then."""
    database, engine = await opened(kind, folder)
    has_read, may_go_on = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(COUNT)
            has_read.set()
            await may_go_on.wait()
            await session.execute(ADD)

    async def second() -> None:
        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(ADD)

    async with asyncio.timeout(60):
        reader = asyncio.create_task(first())
        await has_read.wait()
        writer = asyncio.create_task(second())
        # Where nobody queues it is soon done; where it queues it does not even begin, however long it is given.
        await asyncio.wait([writer], timeout=0.2 if kind is QueuedSqlite else None)
        may_go_on.set()
        await asyncio.gather(reader, writer)
        async with engine.connect() as connection:
            rows = int((await connection.execute(COUNT)).scalar_one())
    await engine.dispose()
    return rows


def test_who_read_before_another_one_wrote_still_writes(tmp_path: Path) -> None:
    assert asyncio.run(overtaken(QueuedSqlite, tmp_path)) == 2


def test_by_itself_prefect_refuses_that(tmp_path: Path) -> None:
    """Where this passes without the queue, the queue is needed no longer."""
    with pytest.raises(OperationalError, match="database is locked"):
        asyncio.run(overtaken(AioSqliteConfiguration, tmp_path))


def test_a_transaction_inside_another_does_not_wait_for_it(tmp_path: Path) -> None:
    async def nested() -> int:
        database, engine = await opened(QueuedSqlite, tmp_path)
        async with asyncio.timeout(60):
            async with await database.session(engine) as outer, database.begin_transaction(outer):
                async with await database.session(engine) as inner, database.begin_transaction(inner):
                    count = int((await inner.execute(COUNT)).scalar_one())
                await outer.execute(ADD)
            async with await database.session(engine) as after, database.begin_transaction(after):
                await after.execute(ADD)
        await engine.dispose()
        return count

    assert asyncio.run(nested()) == 0


def test_a_turn_is_given_back_by_whoever_fails(tmp_path: Path) -> None:
    async def failing() -> None:
        database, engine = await opened(QueuedSqlite, tmp_path)
        async with asyncio.timeout(60):
            for _ in range(2):
                with pytest.raises(ValueError, match="mine"):
                    async with await database.session(engine) as session, database.begin_transaction(session):
                        raise ValueError("mine")
        await engine.dispose()

    asyncio.run(failing())


def test_every_answer_of_the_pages_says_that_a_browser_asks_this_server_alone() -> None:
    text = policy("http://127.0.0.1:4200/api")
    assert "http://127.0.0.1:4200 ws://127.0.0.1:4200" in text
    assert [word for word in text.split() if "://" in word and "127.0.0.1:4200" not in word] == []
    assert "*" not in text
    sent: list[Any] = []

    async def pages(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    asyncio.run(OwnServerOnly(pages, text)({"type": "http"}, receive, send))
    assert sent[0]["headers"] == [(b"content-type", b"text/html"), (b"content-security-policy", text.encode())]
    assert sent[1] == {"type": "http.response.body", "body": b""}
