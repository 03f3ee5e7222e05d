"""The schema: made once whoever comes first, told apart by name, and refused where it is not ours or too new."""

import asyncio
import subprocess
import sys

import asyncpg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection import migrating
from demora.engines.postgres.connection.connections import Statement, connected
from demora.errors import BadSetting, SchemaTooNew, StoreError
from tests.builders import add_one, claim_ids

OPEN = """
import asyncio, sys
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection.connections import Statement
async def main():
    store = PostgresStore(sys.argv[1], PostgresOptions(schema=sys.argv[2], connections=1), audit=True)
    await store.open()
    await store.close()
asyncio.run(main())
"""


async def run(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


@pytest.mark.slow
async def test_eight_processes_that_come_at_once_make_one_schema(url: str, schema: str) -> None:
    command = [sys.executable, "-c", OPEN, url, schema]
    processes = [await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE) for _ in range(8)]
    outcomes = await asyncio.gather(*(process.communicate() for process in processes))
    assert [(process.returncode, error) for process, (_, error) in zip(processes, outcomes, strict=True)] == [(0, b"")] * 8
    assert await migrating.stored_version(url, PostgresOptions(schema=schema)) == migrating.newest()


async def test_two_schemas_hold_different_jobs(store: PostgresStore, url: str, schema: str) -> None:
    other = PostgresStore(url, PostgresOptions(schema=f"{schema}_other", connections=1), clock=store.clock)
    await other.open()
    added = await add_one(store)
    assert await claim_ids(other) == []
    assert await claim_ids(store) == [added.id]
    await other.close()


async def test_a_schema_of_a_newer_demora_is_refused(store: PostgresStore, url: str, schema: str) -> None:
    await run(url, f"update {schema}.meta set value = '999' where name in ('version', 'schema.oldest')")
    with pytest.raises(SchemaTooNew, match="999"):
        await PostgresStore(url, PostgresOptions(schema=schema)).open()


async def test_a_schema_with_other_tables_is_refused_and_left_alone(url: str, schema: str) -> None:
    await run(url, f"create schema {schema}; create table {schema}.jobs (mine int)")
    with pytest.raises(StoreError, match="belongs to another program"):
        await PostgresStore(url, PostgresOptions(schema=schema)).open()
    assert await migrating.stored_version(url, PostgresOptions(schema=schema)) is None


async def test_an_empty_schema_is_taken(url: str, schema: str) -> None:
    await run(url, f"create schema {schema}")
    store = PostgresStore(url, PostgresOptions(schema=schema))
    await store.open()
    await store.close()
    assert await migrating.stored_version(url, PostgresOptions(schema=schema)) == migrating.newest()


@pytest.mark.parametrize("name", ["", "Demora", "a-b", "1a", "a" * 41, 'x"; drop schema public; --'])
def test_names_that_are_no_names_are_refused(url: str, name: str) -> None:
    with pytest.raises(BadSetting, match="database_schema"):
        PostgresStore(url, PostgresOptions(schema=name))


async def test_where_no_server_answers_that_is_said(url: str) -> None:
    with pytest.raises(StoreError, match="cannot reach PostgreSQL"):
        await PostgresStore("postgresql://nobody:hidden@127.0.0.1:1/none").open()


async def test_a_url_for_other_clients_opens_the_database_too(url: str, schema: str) -> None:
    """With what libpq knows and the driver does not, and with a setting for the server."""
    ignored = (
        "connect_timeout=5&keepalives=1&keepalives_idle=9&gssencmode=prefer&channel_binding=prefer&client_encoding=utf8"
    )
    longer = f"{url}{'&' if '?' in url else '?'}{ignored}&target_session_attrs=read-write&options=-c%20work_mem%3D7MB"
    store = PostgresStore(longer, PostgresOptions(schema=schema))
    await store.open()
    try:
        async with store._database.opened().session() as session:
            [row] = await session.rows(Statement("select current_setting('work_mem') as memory", ()))
        assert row["memory"] == "7MB"
    finally:
        await store.close()
    assert await migrating.stored_version(longer, PostgresOptions(schema=schema)) == migrating.newest()


async def test_a_connection_outside_of_a_pool_is_closed_after_use(url: str) -> None:
    async with connected(url) as connection:
        assert not connection.is_closed()
    assert connection.is_closed()
