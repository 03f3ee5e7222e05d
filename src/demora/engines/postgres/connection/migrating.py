"""Schema migrations: which steps a database has seen, and how a process applies the others while other processes work."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import asyncpg

from ....errors import SchemaTooNew, StoreError, StoreUnreachable
from ....system import crash, notices
from ...options import PostgresOptions
from ...sql import steps
from ...sql.steps import Block, SchemaStep
from .connections import DRIVER, PACKAGE, connected, in_schema, is_lost, script, version_of

POLL = 0.2  # seconds between two looks at a lock or at an index that is being built
LOCK_WAIT = "2s"  # for a table: calls of other processes queue up behind a statement that waits for its lock
_CONCURRENTLY = re.compile(r"create (?:unique )?index concurrently (\w+)")


async def migrate(url: str, options: PostgresOptions, known: Sequence[SchemaStep] | None = None) -> None:
    """Apply the steps of the schema that this database has not seen. One process does it at a time; the others wait. Raises
    `StoreUnreachable` if the connection breaks: the next call continues."""
    schema, known = options.schema, known or schema_steps(options.schema)
    with _store_errors(schema):
        async with connected(url) as connection:
            if await version_of(connection, schema) > known[-1].number:
                await _refuse_newer(connection, schema, known)
                return
        async with _alone(url, schema) as guard, connected(url) as connection:
            begun = await version_of(connection, schema) > 0
            for step in known:
                if step.online and begun:
                    await _apply_online(connection, schema, step, guard)
                else:
                    await _apply(connection, schema, step, shown=begun)
                crash.at("schema.migrated")


@contextmanager
def _store_errors(schema: str) -> Iterator[None]:
    """Turn the driver's errors into the store's own."""
    try:
        yield
    except DRIVER as problem:
        words = f"cannot bring the schema {schema} up to date: {problem}"
        raise (StoreUnreachable(words, may_pass=True) if is_lost(problem) else StoreError(words)) from problem


async def stored_version(url: str, options: PostgresOptions) -> int | None:
    """The version of the schema in a database, None if there is none."""
    async with connected(url) as connection:
        return await version_of(connection, options.schema) or None


async def is_usable(connection: Any, schema: str) -> bool:
    """Whether this demora can use the schema without migrating it."""
    try:
        await _refuse_newer(connection, schema, schema_steps(schema))
    except SchemaTooNew:
        return False
    return await version_of(connection, schema) >= newest()


def newest() -> int:
    """The newest version of the schema that this demora knows."""
    return schema_steps("demora")[-1].number


@cache
def schema_steps(schema: str) -> list[SchemaStep]:
    names = [file.name for file in (files(PACKAGE) / "schema").iterdir() if file.name.endswith(".sql")]
    return steps.in_order((name, script(f"schema/{name}", schema)) for name in names)


@asynccontextmanager
async def _alone(url: str, schema: str) -> AsyncIterator[Any]:
    """Yield a connection whose transaction holds a lock that only one migration of this schema gets.

    A process asks for it again and again. If it waited inside a statement, the snapshot of that statement would keep
    `create index concurrently` of another process from ending.
    """
    async with connected(url) as guard:
        while True:
            transaction = guard.transaction()
            await transaction.start()
            await guard.execute("set local idle_in_transaction_session_timeout = 0")
            [(locked,)] = await _rows(guard, "select pg_try_advisory_xact_lock(hashtext($1))", f"demora migration {schema}")
            if locked:
                yield guard
                return
            await transaction.rollback()
            await asyncio.sleep(POLL)


async def _apply(connection: Any, schema: str, step: SchemaStep, *, shown: bool) -> None:
    """Apply a step in one transaction. A new database gets its online steps in this way too."""
    while True:
        try:
            async with connection.transaction():
                await connection.execute(f"set local lock_timeout = '{LOCK_WAIT}'")
                # Earlier versions know only this lock.
                await connection.execute("select pg_advisory_xact_lock(hashtext($1))", f"demora {schema}")
                version = await version_of(connection, schema)
                if version >= step.number:
                    return
                if version == 0:
                    await _begin(connection, schema)
                if shown:
                    notices.schema_step(step.number)
                await connection.execute(step.sql.replace(" concurrently ", " "))
                oldest = step.number if not step.online else await _kept(connection, schema, "oldest") or version
                await _finish(connection, schema, step, oldest)
            return
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(POLL)


async def _apply_online(connection: Any, schema: str, step: SchemaStep, guard: Any) -> None:
    """Apply a step block by block, from the first block that is not done."""
    blocks, shown = step.blocks, None
    while await version_of(connection, schema) < step.number:
        done = await _kept(connection, schema, "blocks") or 0
        block = blocks[done]
        if shown != done:
            notices.schema_block(step.number, block.subject, done + 1, len(blocks))
            shown = done
        try:
            if index := _CONCURRENTLY.search(block.sql):
                await _build(connection, f'"{schema}".{index[1]}', block, guard)
            async with connection.transaction():
                await connection.execute(f"set local lock_timeout = '{LOCK_WAIT}'")
                done += index is not None or await _run(connection, block)
                await _keep(connection, schema, "blocks", done)
                if done == len(blocks):
                    oldest = await _kept(connection, schema, "oldest") or await version_of(connection, schema)
                    await _finish(connection, schema, step, oldest)
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(POLL)
        crash.at("schema.migrated")


async def _run(connection: Any, block: Block) -> bool:
    """Apply a block once, and return whether it is done."""
    status: str = await connection.execute(block.sql)
    return not block.repeated or status.endswith(" 0")


async def _build(connection: Any, index: str, block: Block, guard: Any) -> None:
    """Build an index while other processes keep working. The remains of an interrupted build are removed first."""
    valid = await connection.fetchval("select indisvalid from pg_index where indexrelid = to_regclass($1)", index)
    if valid is False:
        await connection.execute(f"drop index concurrently {index}")
    if not valid:
        building = asyncio.ensure_future(connection.execute(block.sql))
        try:
            while not (await asyncio.wait([building], timeout=1.0))[0]:
                await _show(guard, block.subject)
        finally:
            await building


async def _show(guard: Any, index: str) -> None:
    """Log how far the build of an index is."""
    await guard.execute("select pg_stat_clear_snapshot()")
    for row in await _rows(
        guard,
        "select phase, greatest(blocks_done, tuples_done) as done, greatest(blocks_total, tuples_total) as total "
        "from pg_stat_progress_create_index where datname = current_database() order by index_relid desc limit 1",
    ):
        notices.schema_progress(index, row["phase"], row["done"] / row["total"] if row["total"] else None)


async def _rows(guard: Any, sql: str, *values: str) -> list[Any]:
    """Read in the transaction of the guard, and leave no snapshot behind: the driver's portal keeps one until the next
    statement, and an index would wait for its end."""
    rows: list[Any] = await guard.fetch(sql, *values)
    await guard.execute("select 1")
    return rows


async def _refuse_newer(connection: Any, schema: str, known: Sequence[SchemaStep]) -> None:
    version = await version_of(connection, schema)
    if version > known[-1].number:
        steps.refuse_newer(version, await _kept(connection, schema, "oldest"), known)


async def _finish(connection: Any, schema: str, step: SchemaStep, oldest: int) -> None:
    await connection.execute(in_schema("update demora.meta set value = $1 where name = 'version'", schema), str(step.number))
    await _keep(connection, schema, "oldest", oldest)
    await _keep(connection, schema, "blocks", 0)


async def _kept(connection: Any, schema: str, name: str) -> int | None:
    sql = in_schema("select value from demora.meta where name = $1", schema)
    value = await connection.fetchval(sql, f"schema.{name}")
    return None if value is None else int(value)


async def _keep(connection: Any, schema: str, name: str, value: int) -> None:
    sql = "insert into demora.meta (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value"
    await connection.execute(in_schema(sql, schema), f"schema.{name}", str(value))


async def _begin(connection: Any, schema: str) -> None:
    """Create the schema, or use an empty one."""
    if not await connection.fetchval("select exists (select from pg_namespace where nspname = $1)", schema):
        await connection.execute(f'create schema "{schema}"')
    taken = await connection.fetchval("select exists (select from pg_tables where schemaname = $1)", schema)
    if taken:
        raise StoreError(
            f"the schema {schema} belongs to another program: it has tables, but none of demora's; "
            "name another with DEMORA_DATABASE_SCHEMA"
        )
    await connection.execute(in_schema("create table demora.meta (name text primary key, value text not null)", schema))
    await connection.execute(in_schema("insert into demora.meta (name, value) values ('version', '0')", schema))
