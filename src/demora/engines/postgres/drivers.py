"""Connections that belong to the caller, of whatever driver, asked as asyncpg's are: with `$1`, for rows with named fields.

A driver is recognised by the module of the connection's class, and imported only if one of its connections is given.
"""

import inspect
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ...errors import Invalid
from . import troubles

_NUMBERED = re.compile(r"\$(\d+)")
_KNOWN = "a connection of asyncpg or psycopg 3, or a connection or session of SQLAlchemy"


class Borrowed(Protocol):
    """A connection of the caller's. `blocks` says that nothing is awaited on it; `errors` is what it raises."""

    blocks: bool
    errors: tuple[type[Exception], ...]

    async def commits_by_itself(self) -> bool:
        """Whether each statement would be a transaction of its own."""
        ...

    async def fetch(self, sql: str, *values: Any) -> list[Any]: ...


def borrow(connection: Any) -> Borrowed:
    """The connection, ready to be asked; `Invalid` if no driver is known for it."""
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
    errors: tuple[type[Exception], ...] = troubles.DRIVER

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
        """The connection, which a session takes from its engine and keeps until the end of its transaction."""
        if callable(getattr(type(self._given), "connection", None)):
            return await _answer(self._given.connection())
        return self._given


class _Row(tuple[Any, ...]):
    """A tuple whose fields also have names."""

    places: dict[str, int]

    def __getitem__(self, field: Any) -> Any:
        return super().__getitem__(self.places[field] if isinstance(field, str) else field)


def _rows(names: Iterable[str], values: Iterable[Sequence[Any]]) -> list[Any]:
    places = {name: place for place, name in enumerate(names)}
    rows = [_Row(one) for one in values]
    for row in rows:
        row.places = places
    return rows


async def _answer(given: Any) -> Any:
    """What a call came to, whether its driver blocks or not."""
    return await given if inspect.isawaitable(given) else given


@lru_cache(maxsize=64)
def _text(sql: str, count: int) -> Any:
    """The statement with `:p1` for `$1`. Its parameters have no type, so that the casts in it are the only ones; the blank
    keeps these casts apart from the names."""
    from sqlalchemy import bindparam, text
    from sqlalchemy.types import NullType

    named = text(_NUMBERED.sub(r":p\1 ", sql))
    return named.bindparams(*[bindparam(f"p{number}", type_=NullType()) for number in range(1, count + 1)])
