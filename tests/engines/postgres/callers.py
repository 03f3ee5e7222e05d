"""Programs with a transaction of their own: one for each driver, all led in the same way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from demora import Demora, Job


class Caller:
    """A connection in a transaction, which the program itself begins and ends."""

    def __init__(self, app: Demora, given: Any, execute: Any, commit: Any, rollback: Any, *, blocks: bool = False) -> None:
        self.app, self.given, self.blocks = app, given, blocks
        self._execute, self._commit, self._rollback = execute, commit, rollback

    async def enqueue(self, type: str = "demo.echo", payload: Any = None, **options: Any) -> Job:
        enqueue = self.app.blocking.enqueue if self.blocks else self.app.enqueue
        return await self._ask(enqueue, type, payload, within=self.given, **options)

    async def enqueue_many(self, asked_for: list[Any]) -> list[Job]:
        enqueue_many = self.app.blocking.enqueue_many if self.blocks else self.app.enqueue_many
        return await self._ask(enqueue_many, asked_for, within=self.given)

    async def execute(self, sql: str) -> Any:
        return await self._ask(self._execute, sql)

    async def commit(self) -> None:
        await self._ask(self._commit)

    async def rollback(self) -> None:
        await self._ask(self._rollback)

    async def _ask(self, ask: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await (asyncio.to_thread(ask, *args, **options) if self.blocks else ask(*args, **options))


@asynccontextmanager
async def with_asyncpg(app: Demora, url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(app, connection, connection.execute, transaction.commit, transaction.rollback)
    connection.terminate()


@asynccontextmanager
async def with_an_asyncpg_pool(app: Demora, url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(app, connection, connection.execute, transaction.commit, transaction.rollback)
        await connection.reset()


@contextmanager
def with_psycopg(app: Demora, url: str) -> Iterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(app, connection, connection.execute, connection.commit, connection.rollback, blocks=True)


@contextmanager
def with_other_psycopg(app: Demora, url: str) -> Iterator[Caller]:
    """A connection that commits by itself, but for a block; its rows are dicts, and it binds parameters on its own side."""
    how: Any = {"autocommit": True, "row_factory": psycopg.rows.dict_row, "cursor_factory": psycopg.ClientCursor}
    with psycopg.connect(url, **how) as connection:
        connection.execute("begin")
        end = (lambda: connection.execute("commit"), lambda: connection.execute("rollback"))
        yield Caller(app, connection, connection.execute, *end, blocks=True)


@asynccontextmanager
async def with_async_psycopg(app: Demora, url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(app, connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def with_sqlalchemy(app: Demora, url: str) -> Iterator[Caller]:
    with engine(url).connect() as connection:
        yield Caller(app, connection, connection.exec_driver_sql, connection.commit, connection.rollback, blocks=True)


@contextmanager
def with_a_sqlalchemy_session(app: Demora, url: str) -> Iterator[Caller]:
    with Session(engine(url)) as session:
        yield Caller(app, session, _executing(session), session.commit, session.rollback, blocks=True)


@asynccontextmanager
async def with_async_sqlalchemy(app: Demora, url: str, driver: str = "asyncpg") -> AsyncIterator[Caller]:
    async with async_engine(url, driver).connect() as connection:
        yield Caller(app, connection, connection.exec_driver_sql, connection.commit, connection.rollback)


@asynccontextmanager
async def with_async_sqlalchemy_on_psycopg(app: Demora, url: str) -> AsyncIterator[Caller]:
    async with with_async_sqlalchemy(app, url, "psycopg") as caller:
        yield caller


@asynccontextmanager
async def with_an_async_sqlalchemy_session(app: Demora, url: str) -> AsyncIterator[Caller]:
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import AsyncSession

    async with AsyncSession(async_engine(url, "asyncpg")) as session:
        yield Caller(app, session, _executing(session), session.commit, session.rollback)


def _executing(session: Any) -> Callable[[str], Any]:
    return lambda sql: session.execute(sqlalchemy.text(sql))


def engine(url: str, **options: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(_named(url, "psycopg"), poolclass=NullPool, **options)


def async_engine(url: str, driver: str, **options: Any) -> Any:
    pytest.importorskip("greenlet", reason="SQLAlchemy needs greenlet to be async")
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(_named(url, driver), poolclass=NullPool, **options)


def _named(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


CALLERS = {
    "asyncpg": with_asyncpg,
    "asyncpg-pool": with_an_asyncpg_pool,
    "psycopg": with_psycopg,
    "psycopg-other": with_other_psycopg,
    "psycopg-async": with_async_psycopg,
    "sqlalchemy": with_sqlalchemy,
    "sqlalchemy-session": with_a_sqlalchemy_session,
    "sqlalchemy-async": with_async_sqlalchemy,
    "sqlalchemy-async-psycopg": with_async_sqlalchemy_on_psycopg,
    "sqlalchemy-async-session": with_an_async_sqlalchemy_session,
}


@asynccontextmanager
async def calling(name: str, app: Demora, url: str) -> AsyncIterator[Caller]:
    """The caller of this name."""
    made: Any = CALLERS[name](app, url)
    if hasattr(made, "__aenter__"):
        async with made as caller:
            yield caller
    else:
        with made as caller:
            yield caller
