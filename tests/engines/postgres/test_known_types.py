"""Connections ask the server for built-in types once in a process, and for all others each time."""

from typing import Any

import asyncpg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection import connections
from tests.builders import add_one, claim_one


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The types that the driver asks the server for, from a process that knows none yet."""
    asked: list[set[int]] = []
    introspect = asyncpg.Connection._introspect_types

    async def note(self: Any, typeoids: Any, *rest: Any, **more: Any) -> Any:
        asked.append(set(typeoids))
        return await introspect(self, typeoids, *rest, **more)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", note)
    monkeypatch.setattr(connections._Connection, "_built_in", {})
    return asked


async def test_a_later_connection_asks_for_no_built_in_type(url: str, schema: str, asked: list[set[int]]) -> None:
    await _live(url, schema)
    assert asked
    asked.clear()
    await _live(url, schema)
    assert asked == []


async def test_types_of_the_database_itself_are_asked_for_in_each_connection(
    url: str, schema: str, asked: list[set[int]]
) -> None:
    """The same number may belong to another type in another database."""
    moods = []
    for mood in ("glad", "calm"):
        connection = await asyncpg.connect(url, connection_class=connections._Connection)
        await connection.execute(f"create schema {schema}; create type {schema}.mood as enum ('{mood}')")
        moods.append(await connection.fetchval(f"select array['{mood}'::{schema}.mood]"))
        await connection.execute(f"drop schema {schema} cascade")
        await connection.close()
    assert moods == [["glad"], ["calm"]]
    assert len(asked) == 2
    assert connections._Connection._built_in == {}


async def _live(url: str, schema: str) -> None:
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=2))
    await store.open()
    await add_one(store)
    await claim_one(store)
    await store.close()
