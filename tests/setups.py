"""The set-ups that every conformance test runs on. A new engine is added here and nowhere else."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres import notifier as postgres_notifier
from demora.engines.postgres.connection.connections import in_schema
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite import notifier as sqlite_notifier
from demora.line import LinedStore, SqlStore
from demora.line.redis import RedisLine
from demora.store.store import Store
from demora.system.clock import Clock
from tests.copies import jobs_file
from tests.servers import pgbouncer, postgres, valkey

# Run the set-ups of this engine alone: sqlite, postgres, lined-sqlite, lined-postgres or pgbouncer; lined means two of them.
ENGINE = os.environ.get("DEMORA_TEST_ENGINE", "")

# Where each engine says how often a waiter looks at the clock.
NOTIFIERS = [sqlite_notifier, postgres_notifier]


class Setup(NamedTuple):
    """One way to keep jobs.

    `shared` says that two stores made for the same place see the same jobs; `boots` that leases count by the time since the
    machine's boot, not by the wall clock.
    """

    name: str
    make: Callable[[Path, Clock], Store]
    shared: bool = True
    boots: bool = True


class _Emptied(PostgresStore):
    """A store that finds its schema empty when it is first opened for a folder: to empty one is quicker than to make it."""

    async def open(self) -> None:
        await super().open()
        if self.options.schema in _DIRTY:
            _DIRTY.discard(self.options.schema)
            _emptying(postgres_url(), os.getpid()).execute(in_schema(EMPTY, self.options.schema).encode())


@functools.cache
def _emptying(url: str, process: int) -> "psycopg.Connection[Any]":
    """A connection for all tests of a process: a new one would first have to read what the server knows of each table."""
    return psycopg.connect(url, autocommit=True, options="-c lock_timeout=60s")


# Deletes the rows of tables that were written to, without triggers. To truncate a table makes new files for it and each
# of its indexes, which costs many times as much. So only tables are truncated for which PostgreSQL would plan otherwise
# than for new ones: those that were analysed, and those of more than ten pages, which it assumes for all smaller ones.
EMPTY = """do $$
declare
    home oid := (select relnamespace from pg_class where oid = 'demora.meta'::regclass);
    grown text;
    written regclass;
begin
    select string_agg(oid::regclass::text, ', ') into grown from pg_class
    where relnamespace = home and relkind = 'r' and relname <> 'meta' and (pg_relation_size(oid) > 81920 or reltuples >= 0);
    if grown is not null then
        execute 'truncate ' || grown || ' restart identity cascade';
    end if;
    set local session_replication_role = replica;
    for written in
        select oid from pg_class
        where relnamespace = home and relkind = 'r' and relname <> 'meta' and pg_relation_size(oid) > 0
    loop
        execute 'delete from ' || written;
    end loop;
    perform setval(oid::regclass, 1, false) from pg_class where relnamespace = home and relkind = 'S';
end $$;
delete from demora.meta where name like 'line_%' or name in ('zones', 'settled')"""
_SCHEMAS: dict[tuple[Path, bool], str] = {}
_DIRTY: set[str] = set()
AT_ONCE = 4  # folders in use at the same time, at most


def postgres_store(folder: Path, clock: Clock | None = None, *, audit: bool = False, **options: Any) -> PostgresStore:
    """A store on this run's server, in a schema that belongs to a folder."""
    chosen = PostgresOptions(**{"schema": _schema_of(folder, audit=audit), "connections": 2, **options})
    return _Emptied(pgbouncer_url() if chosen.pooler else postgres_url(), chosen, clock=clock, audit=audit)


def _schema_of(folder: Path, *, audit: bool) -> str:
    if (folder, audit) not in _SCHEMAS:
        _SCHEMAS[folder, audit] = schema = f"t{len(_SCHEMAS) % AT_ONCE}_{'audited' if audit else 'plain'}"
        _DIRTY.add(schema)
    return _SCHEMAS[folder, audit]


def emptied_schema(folder: Path) -> str:
    """The schema of a folder for tests that make stores of their own. It is empty, or not there yet."""
    url, schema = postgres_url(), _schema_of(folder, audit=False)
    if schema in _DIRTY:
        _DIRTY.discard(schema)
        connection = _emptying(url, os.getpid())
        if connection.execute("select to_regclass(%s)", (f"{schema}.meta",)).fetchone() != (None,):
            connection.execute(in_schema(EMPTY, schema).encode())
    return schema


def pooled_store(folder: Path, clock: Clock | None = None) -> PostgresStore:
    """A store behind a pooler, which is woken past it."""
    return postgres_store(folder, clock, pooler=True, listen_url=postgres_url())


def pgbouncer_url() -> str:
    """The address of a pgbouncer before this run's server. Without one on the PATH the test is skipped."""
    postgres_url()
    try:
        return pgbouncer.shared()
    except pgbouncer.Missing as missing:
        pytest.skip(str(missing))


def postgres_url() -> str:
    """The address of this run's server. Without a PostgreSQL the test is skipped, but not in CI."""
    if ENGINE.endswith("sqlite"):
        pytest.skip("only SQLite is asked for")
    try:
        return postgres.shared().url
    except postgres.Missing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


def redis_url() -> str:
    """The address of this run's Valkey. Without one the test is skipped, but not in CI."""
    try:
        return valkey.shared().url
    except valkey.Missing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


def lined_store(inner: SqlStore) -> LinedStore:
    """A store with a line on this run's Valkey."""
    url = redis_url()
    return LinedStore(inner, lambda: RedisLine(url))


_ALL = [
    Setup("sqlite-memory", lambda _, clock: SqliteStore(clock=clock), shared=False),
    Setup("sqlite-memory-audited", lambda _, clock: SqliteStore(clock=clock, audit=True), shared=False),
    Setup("sqlite-file", lambda folder, clock: SqliteStore(jobs_file(folder), clock=clock)),
    Setup("postgres", postgres_store, boots=False),
    Setup("postgres-audited", lambda folder, clock: postgres_store(folder, clock, audit=True), boots=False),
    Setup("lined-postgres", lambda folder, clock: lined_store(postgres_store(folder, clock)), boots=False),
    Setup("lined-sqlite", lambda folder, clock: lined_store(SqliteStore(jobs_file(folder), clock=clock))),
]
# Not for the whole suite but for the model, which makes many stores.
_IN_MEMORY = Setup("lined-sqlite-memory", lambda _, clock: lined_store(SqliteStore(clock=clock)), shared=False)
MODEL_SETUPS = [setup for setup in [*_ALL, _IN_MEMORY] if setup.name.startswith(ENGINE)]
_ON_REQUEST = [Setup("pgbouncer", pooled_store, boots=False)]
SETUPS = [setup for setup in (*_ALL, *(_ON_REQUEST if ENGINE else [])) if setup.name.startswith(ENGINE)]
SHARED_SETUPS = [setup for setup in SETUPS if setup.shared]
BOOTING_SETUPS = [setup for setup in SETUPS if setup.boots]
