"""Online steps of the schema: earlier versions go on, indexes are built beside them, and a killed migration continues."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence

import asyncpg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection import migrating
from demora.engines.sql.steps import SchemaStep
from demora.errors import SchemaTooNew, StoreUnreachable
from demora.system import crash
from tests.builders import add_one, claim_ids
from tests.facts import eventually
from tests.servers import proxy as proxies

NEXT = migrating.newest() + 1


@pytest.fixture
def options(schema: str) -> PostgresOptions:
    return PostgresOptions(schema=schema, connections=2)


@pytest.fixture
def online(schema: str) -> SchemaStep:
    return SchemaStep(
        NEXT,
        f"""-- online
-- What the step is for.

alter table {schema}.jobs add column colour text;

create index concurrently jobs_coloured on {schema}.jobs (colour) where colour is not null;

-- repeat
update {schema}.jobs set colour = 'red' where seq in (select seq from {schema}.jobs where colour is null limit 2);
""",
    )


@pytest.fixture
def closing(schema: str) -> SchemaStep:
    return SchemaStep(NEXT + 1, f"alter table {schema}.jobs add column taste text;")


@pytest.fixture
async def jobs(store: PostgresStore) -> list[str]:
    return [(await add_one(store)).id for _ in range(5)]


async def migrate(url: str, options: PostgresOptions, *more: SchemaStep) -> None:
    await migrating.migrate(url, options, earlier(options.schema, *more))


def earlier(schema: str, *more: SchemaStep) -> Sequence[SchemaStep]:
    return [*migrating.schema_steps(schema), *more]


async def fetch(url: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(sql)
    await connection.close()
    return [tuple(row) for row in rows]


async def test_a_store_goes_on_during_and_after_an_online_step_and_can_be_opened_again(
    store: PostgresStore, jobs: list[str], url: str, options: PostgresOptions, online: SchemaStep
) -> None:
    await migrate(url, options, online)
    assert await claim_ids(store) == jobs
    restarted = PostgresStore(url, options, clock=store.clock)
    await restarted.open()
    added = await add_one(restarted)
    assert await claim_ids(restarted) == [added.id]
    await restarted.close()
    assert await migrating.stored_version(url, options) == NEXT


async def test_after_a_step_that_is_not_online_earlier_versions_are_refused(
    store: PostgresStore, url: str, options: PostgresOptions, online: SchemaStep, closing: SchemaStep
) -> None:
    await migrate(url, options, online, closing)
    with pytest.raises(SchemaTooNew, match=f"schema {NEXT + 1}"):
        await PostgresStore(url, options).open()
    with pytest.raises(SchemaTooNew):
        await migrate(url, options, online)


async def test_a_schema_without_a_record_of_its_oldest_version_is_refused(
    store: PostgresStore, url: str, options: PostgresOptions, online: SchemaStep
) -> None:
    await migrate(url, options, online)
    await fetch(url, f"delete from {options.schema}.meta where name = 'schema.oldest'")
    with pytest.raises(SchemaTooNew):
        await PostgresStore(url, options).open()


async def test_a_step_that_an_earlier_version_applies_meanwhile_is_not_applied_again(
    store: PostgresStore, url: str, options: PostgresOptions, closing: SchemaStep
) -> None:
    earlier = await asyncpg.connect(url)
    async with earlier.transaction():
        await earlier.execute("select pg_advisory_xact_lock(hashtext($1))", f"demora {options.schema}")
        waiting = asyncio.ensure_future(migrating.migrate(url, options, [closing]))
        waits = "select from pg_locks where locktype = 'advisory' and not granted"
        await eventually(lambda: fetch(url, waits))
        await earlier.execute(closing.sql)
        await earlier.execute(f"update {options.schema}.meta set value = '{closing.number}' where name = 'version'")
    await waiting
    await earlier.close()
    assert await migrating.stored_version(url, options) == closing.number


async def test_an_index_is_built_while_a_transaction_writes_to_the_table(
    store: PostgresStore, jobs: list[str], url: str, options: PostgresOptions
) -> None:
    index = f"create index concurrently jobs_by_type on {options.schema}.jobs (type)"
    writer = await asyncpg.connect(url)
    transaction = writer.transaction()
    await transaction.start()
    await writer.execute(f"update {options.schema}.jobs set name = 'x'")
    building = asyncio.ensure_future(migrate(url, options, SchemaStep(NEXT, f"-- online\n{index}")))
    begun = f"select from pg_stat_activity where query = '{index}' and wait_event_type = 'Lock'"
    await eventually(lambda: fetch(url, begun))
    await add_one(store)  # nothing queues up behind the build
    await transaction.commit()
    await building
    await writer.close()
    assert await fetch(url, f"select indisvalid from pg_index where indexrelid = '{options.schema}.jobs_by_type'::regclass")


async def test_processes_that_come_at_once_wait_for_one_that_builds_an_index(
    store: PostgresStore, jobs: list[str], url: str, options: PostgresOptions, online: SchemaStep
) -> None:
    await asyncio.gather(*(migrate(url, options, online) for _ in range(4)))
    assert await migrating.stored_version(url, options) == NEXT
    assert await fetch(url, f"select distinct colour from {options.schema}.jobs") == [("red",)]


async def test_a_table_that_is_in_use_is_asked_for_briefly_and_again(
    store: PostgresStore, url: str, options: PostgresOptions, closing: SchemaStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "LOCK_WAIT", "10ms")
    reader = await asyncpg.connect(url)
    transaction = reader.transaction()
    await transaction.start()
    await reader.fetch(f"select 1 from {options.schema}.jobs")
    tries, asked = itertools.count(1), asyncio.Event()
    monkeypatch.setattr(migrating.notices, "schema_step", lambda number: asked.set() if next(tries) > 1 else None)
    under_way = asyncio.ensure_future(migrate(url, options, SchemaStep(NEXT, closing.sql)))
    await asked.wait()
    await add_one(store)
    await transaction.commit()
    await under_way
    await reader.close()
    assert await migrating.stored_version(url, options) == NEXT


@pytest.mark.parametrize("blocks", range(1, 5))
async def test_a_migration_that_was_killed_continues_at_the_same_block(
    store: PostgresStore, jobs: list[str], url: str, options: PostgresOptions, online: SchemaStep, blocks: int
) -> None:
    class Killed(BaseException):
        pass

    left = blocks + len(earlier(options.schema))

    def kill(point: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    crash.arm(kill)
    try:
        with pytest.raises(Killed):
            await migrate(url, options, online)
    finally:
        crash.arm(None)
    assert await migrating.stored_version(url, options) == NEXT - 1
    await migrate(url, options, online)
    assert await migrating.stored_version(url, options) == NEXT
    assert await fetch(url, f"select colour from {options.schema}.jobs") == [("red",)] * 5


async def test_the_rest_of_a_build_that_was_interrupted_is_built_anew(
    store: PostgresStore, jobs: list[str], url: str, options: PostgresOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL leaves an index that is not valid behind, for instance where a unique one found duplicates."""
    schema = options.schema
    connection = await asyncpg.connect(url)
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(f"create unique index concurrently jobs_by_type on {schema}.jobs (type)")
    await connection.close()
    valid = f"select indisvalid from pg_index where indexrelid = '{schema}.jobs_by_type'::regclass"
    assert await fetch(url, valid) == [(False,)]
    with caplog.at_level(logging.INFO, "demora"):
        await migrate(
            url, options, SchemaStep(NEXT, f"-- online\ncreate index concurrently jobs_by_type on {schema}.jobs (type)")
        )
    assert await fetch(url, valid) == [(True,)]
    assert "jobs_by_type, block 1 of 1" in caplog.text


async def test_a_new_schema_gets_online_steps_too(
    url: str, options: PostgresOptions, online: SchemaStep, closing: SchemaStep
) -> None:
    await migrate(url, options, online, closing)
    assert await fetch(url, f"select colour, taste from {options.schema}.jobs") == []


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_migration_whose_connection_breaks_can_be_tried_again(
    url: str, options: PostgresOptions, arrives: bool
) -> None:
    async with proxies.before(url) as (proxy, through):
        for nth in range(1, 25):
            proxy.cut_at(nth, arrives=arrives)
            with contextlib.suppress(StoreUnreachable):
                await migrating.migrate(through, options)
        assert proxy.cuts > 10
        await migrating.migrate(through, options)
    assert await migrating.stored_version(url, options) == migrating.newest()
