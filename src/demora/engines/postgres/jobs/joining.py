"""Adding jobs in the caller's own transaction, on a connection of asyncpg, psycopg or SQLAlchemy.

Every connection is used as asyncpg's are: statements have `$1` for a parameter, and rows have named fields. The driver is
recognised by the module of the connection's class, and imported only when one of its connections is given.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from ....core.job import Job, NewJob
from ....errors import Invalid
from ....store.jobs import Added, Topic
from ...sql.adding import is_plain
from .. import rows
from ..connection import connections
from ..connection.connections import DatabaseNumbers, Session, Statement
from ..notifier import Notifier
from . import adding

_NUMBERED = re.compile(r"\$(\d+)")
_KNOWN = "a connection of asyncpg or psycopg 3, or a connection or session of SQLAlchemy"


class Borrowed(Protocol):
    """A connection of the caller's. `blocks` says that its calls block the thread; `errors` are what it raises."""

    blocks: bool
    errors: tuple[type[Exception], ...]

    async def commits_by_itself(self) -> bool:
        """Whether each statement would be a transaction of its own."""
        ...

    async def fetch(self, sql: str, *values: Any) -> list[Any]: ...


def borrow(connection: Any) -> Borrowed:
    """Wrap a connection of the caller's; `Invalid` if its driver is not known."""
    modules = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "asyncpg" in modules and hasattr(connection, "is_in_transaction"):
        return _Asyncpg(connection)
    if "psycopg" in modules and hasattr(connection, "cursor"):
        return _Psycopg(connection)
    if "sqlalchemy" in modules and hasattr(connection, "execute"):
        return _SqlAlchemy(connection)
    raise Invalid("within", f"must be {_KNOWN}; this is {type(connection).__module__}.{type(connection).__qualname__}")


class _Asyncpg:
    blocks = False
    errors: tuple[type[Exception], ...] = connections.DRIVER

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def commits_by_itself(self) -> bool:
        return not self._connection.is_in_transaction()

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        found = await self._connection.fetch(sql, *values)
        return _rows(found[0].keys(), found) if found else []


class _Psycopg:
    def __init__(self, connection: Any) -> None:
        import psycopg

        self._connection = connection
        self.blocks = isinstance(connection, psycopg.Connection)
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self._cursor: Any = psycopg.RawCursor if self.blocks else psycopg.AsyncRawCursor

    async def commits_by_itself(self) -> bool:
        return bool(self._connection.autocommit and self._connection.info.transaction_status.name == "IDLE")

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        from psycopg.rows import tuple_row

        cursor = self._cursor(self._connection, row_factory=tuple_row)
        await _answer(cursor.execute(sql, values))
        if cursor.description is None:
            return []
        return _rows([column.name for column in cursor.description], await _answer(cursor.fetchall()))


class _SqlAlchemy:
    def __init__(self, given: Any) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        self._given = given
        self.blocks = not any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(given).__mro__)
        self.errors: tuple[type[Exception], ...] = (SQLAlchemyError,)

    async def commits_by_itself(self) -> bool:
        connection = await self._connection()
        if connection.dialect.name != "postgresql":
            raise Invalid(
                "within", f"must be a connection to PostgreSQL, where the jobs are; it is to {connection.dialect.name}"
            )
        pooled = getattr(connection, "sync_connection", connection).connection
        return bool(pooled.dbapi_connection.autocommit)

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        connection = await self._connection()
        named = {f"p{number}": value for number, value in enumerate(values, 1)}
        result = await _answer(connection.execute(_text(sql, len(values)), named))
        return _rows(result.keys(), result.all()) if result.returns_rows else []

    async def _connection(self) -> Any:
        """The connection itself, or the one that a session uses until the end of its transaction."""
        if callable(getattr(type(self._given), "connection", None)):
            return await _answer(self._given.connection())
        return self._given


class _Row(tuple[Any, ...]):
    """A tuple whose fields also have names."""

    columns: dict[str, int]

    def __getitem__(self, field: Any) -> Any:
        return super().__getitem__(self.columns[field] if isinstance(field, str) else field)


def _rows(names: Iterable[str], values: Iterable[Sequence[Any]]) -> list[Any]:
    columns = {name: number for number, name in enumerate(names)}
    rows = [_Row(one) for one in values]
    for row in rows:
        row.columns = columns
    return rows


async def _answer(given: Any) -> Any:
    """The result of a call, whether its driver blocks or is async."""
    return await given if inspect.isawaitable(given) else given


@lru_cache(maxsize=64)
def _text(sql: str, count: int) -> Any:
    """The statement with `:p1` for `$1`. Its parameters have no type, so that only the casts in the statement apply; the
    space separates these casts from the names."""
    from sqlalchemy import bindparam, text
    from sqlalchemy.types import NullType

    named = text(_NUMBERED.sub(r":p\1 ", sql))
    return named.bindparams(*[bindparam(f"p{number}", type_=NullType()) for number in range(1, count + 1)])


Naming = Callable[[Set[str]], Awaitable[None]]


class Joined:
    """A transaction of the caller's in the database of the store, whose server and database have these `numbers`.

    New queues are recorded outside of it, and stay if it is rolled back. Inside, other callers that add to a new queue would
    have to wait until the transaction ends.
    """

    def __init__(
        self,
        borrowed: Borrowed,
        known: dict[str, Statement],
        *,
        wall_us: int | None,
        lined: bool,
        numbers: DatabaseNumbers,
        name_queues: Naming,
        notifier: Notifier,
    ) -> None:
        self._borrowed, self._numbers, self._name_queues, self._notifier = borrowed, numbers, name_queues, notifier
        self._session = Session(_Connection(borrowed, known), known, wall_us, lined)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Record jobs, which exist once the caller commits. With a conflict nothing is recorded and the transaction is
        unchanged. If the database refuses, the caller gets a `StoreError` and must roll back."""
        self._expect_its_thread()
        for job in jobs:
            job.payload.decode()  # a payload that is not text fails before the transaction is touched
        with self._refusals():
            await self._expect_database()
            queues = {job.queue for job in jobs}
            await self._name_queues(queues)
            add = adding.add_plain if all(map(is_plain, jobs)) else adding.add
            answers = await add(self._session, jobs, queues)
            await self._notifier.notify_at_commit(_topics(jobs, answers), self._session)
        return answers

    async def get(self, id: str) -> Job | None:
        with self._refusals():
            return await rows.get(self._session, id)

    def _expect_its_thread(self) -> None:
        if self._borrowed.blocks and _runs_a_loop():
            raise Invalid(
                "within",
                "this connection would hold up the event loop of this thread: give an async connection here, or this one to "
                "app.blocking on another thread",
            )
        if not self._borrowed.blocks and not _runs_a_loop():
            raise Invalid("within", "this connection is async: await app.enqueue with it, on its own event loop")

    async def _expect_database(self) -> None:
        if await self._borrowed.commits_by_itself():
            raise Invalid(
                "within",
                "this connection is in no transaction and commits each statement by itself: begin a transaction on it first",
            )
        row = await self._session.row("database_numbers")
        if (row["server"], row["database"]) != self._numbers:
            raise Invalid(
                "within",
                f"this connection is to another database than the jobs are in ({row['name']!r} on its server): connect to "
                "that of DEMORA_DATABASE_URL, or enqueue without `within` once you have committed",
            )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except self._borrowed.errors as problem:
            raise connections.refused_within(problem) from problem


class _Connection:
    """A borrowed connection, in the form that a session needs."""

    backend = None

    def __init__(self, borrowed: Borrowed, known: dict[str, Statement]) -> None:
        self._borrowed, self._known = borrowed, known

    def is_closed(self) -> bool:
        return False  # its driver's errors are the caller's

    async def fetch(self, sql: str, *values: Any, timeout: float | None = None) -> list[Any]:
        assert timeout is None, "only searches have a time limit, and they never run here"
        return await self._borrowed.fetch(sql, *values)

    def transaction(self) -> "_Savepoint":
        return _Savepoint(self, self._known)


class _Savepoint:
    """A savepoint: the part of the caller's transaction that can be rolled back alone."""

    def __init__(self, connection: _Connection, known: dict[str, Statement]) -> None:
        self._connection, self._known = connection, known

    async def start(self) -> None:
        await self._connection.fetch(self._known["savepoint"].sql)

    async def commit(self) -> None:
        await self._connection.fetch(self._known["release_savepoint"].sql)

    async def rollback(self) -> None:
        await self._connection.fetch(self._known["unwind"].sql)
        await self.commit()


def _topics(jobs: Sequence[NewJob], answers: Sequence[Added]) -> set[Topic]:
    """The topics to notify at the commit. Jobs that are not first in their queue now may be first by then."""
    if any(answer.conflict for answer in answers):
        return set()
    new = [job for job, answer in zip(jobs, answers, strict=True) if not (answer.replayed or answer.kept)]
    expiring = any(job.expires_at is not None or job.expires_in is not None for job in new)
    return ({Topic.READY} if new else set()) | ({Topic.EXPIRY} if expiring else set())


def _runs_a_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
