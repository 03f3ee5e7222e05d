"""A database as a busy day leaves it: jobs of all states in many queues and types, and a week of statistics.

The rows are made in the database, since adding millions of jobs one by one would take hours.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import apsw
import asyncpg

from bench.million import HUNDRED_BYTES
from demora.core.job import Lane
from demora.core.spans import span_ms
from demora.core.states import Status
from demora.core.statistics import DAY, HOUR, MINUTE, WINDOW, Tally, begin_of
from demora.engines.postgres.connection.connections import in_schema
from demora.engines.sql.statistics import text

QUEUES, TYPES, ERRORS, TAGS = 20, 50, 20, 100
CHUNK = 250_000  # rows that are made at a time
_DAY = span_ms(DAY)

# Of a hundred jobs 78 were completed, 2 failed and 2 cancelled within the last day; 15 come due within 30 days, 2 are ready,
# and 1 waits for a retry. A type lives in one queue. One job in ten has a tag.
_STATUS = f"""case when n % 100 < 78 then {Status.COMPLETED.value} when n % 100 < 80 then {Status.FAILED.value}
    when n % 100 < 82 then {Status.CANCELLED.value} when n % 100 < 99 then {Status.QUEUED.value}
    else {Status.RETRYING.value} end"""
_READY = "n % 100 in (97, 98)"
_COLUMNS = (
    "id, type, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, token, payload, tags, error, "
    "result, worker_id, claimed_at, started_at, completed_at"
)
_VALUES = f"""
    't' || ((n * 7 + n / 100) % {TYPES}), 'q' || ((n * 7 + n / 100) % {TYPES} % {QUEUES}), status,
    case when status = {Status.RETRYING.value} then {Lane.RETRY.value} when {_READY} then {Lane.REALTIME.value}
        else {Lane.SCHEDULED.value} end, 2,
    case when status > 2 or {_READY} then created else created + {_DAY} + n * 7919 % {30 * _DAY} end,
    created, 3, 1000, case when status = {Status.QUEUED.value} then 0 else 1 end, '{json.dumps(HUNDRED_BYTES)}',
    case when n % 10 = 0 then '["g' || (n / 10 % {TAGS}) || '"]' end,
    case when status = {Status.FAILED.value} then 'Error' || (n / 100 % {ERRORS}) || ': no answer' end,
    case when status = {Status.COMPLETED.value} then '{{"ok":true}}' end,
    case when status > 3 then 'bench' end, case when status > 3 then created end,
    case when status > 3 then created end, case when status > 3 then created + 100 end
"""
_SQLITE = f"""
with recursive made (n) as (select :first union all select n + 1 from made where n + 1 < :end),
rows as (select n, :begin + n * {_DAY} / :jobs as created, {_STATUS} as status from made)
insert into jobs ({_COLUMNS}) select unhex(printf('%012x70008000%012x', created, n)), {_VALUES} from rows
"""
_POSTGRES = f"""
with rows as (
    select n, $3::bigint + n * {_DAY} / $4::bigint as created, {_STATUS} as status
    from generate_series($1::bigint, $2::bigint - 1) as n
)
insert into demora.jobs ({_COLUMNS})
select (lpad(to_hex(created), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, {_VALUES} from rows
"""
# Dropped before and made anew afterwards, which is quicker.
_SQLITE_INDEXES = "select sql, name from sqlite_master where type = 'index' and tbl_name = 'jobs' and sql is not null"
_POSTGRES_INDEXES = """
select pg_get_indexdef(indexrelid), indexrelid::regclass::text from pg_index
where indrelid = 'demora.jobs'::regclass and not exists (select from pg_constraint where conindid = indexrelid)
"""

Told = Callable[[str], None]


async def fill(url: str, jobs: int, tell: Told = lambda _: None, *, schema: str = "demora") -> None:
    """Make so many jobs, and the statistics of a week. `tell` hears how far it is. A `schema` is one of PostgreSQL."""
    if url.startswith("postgresql"):
        await _fill_postgres(url, jobs, tell, schema)
    else:
        await asyncio.to_thread(_fill_sqlite, url.removeprefix("sqlite:///"), jobs, tell)


def _chunks(jobs: int, tell: Told) -> Iterator[tuple[int, int]]:
    for first in range(0, jobs, CHUNK):
        yield first, min(first + CHUNK, jobs)
        tell(f"made {min(first + CHUNK, jobs):,} of {jobs:,} jobs")


def _fill_sqlite(path: str, jobs: int, tell: Told) -> None:
    db, now = apsw.Connection(path), round(time.time() * 1000)
    indexes = list(db.execute(_SQLITE_INDEXES))
    for _, name in indexes:
        db.execute(f"drop index {name}")
    for first, end in _chunks(jobs, tell):
        with db:
            db.execute(_SQLITE, {"first": first, "end": end, "begin": now - _DAY, "jobs": jobs})
    tell("indexes them")
    with db:
        for sql, _ in indexes:
            db.execute(sql)
        db.execute("insert into job_tags (tag, job_id) select one.value, jobs.id from jobs, json_each(tags) as one")
        db.executemany("insert or ignore into queues (name) values (?)", [(f"q{n}",) for n in range(QUEUES)])
        db.executemany("insert into statistics (width, at, queue, type, tally) values (?, ?, ?, ?, ?)", _statistics(now))
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


async def _fill_postgres(url: str, jobs: int, tell: Told, schema: str) -> None:
    connection, now = await asyncpg.connect(url), round(time.time() * 1000)
    try:
        indexes = await connection.fetch(in_schema(_POSTGRES_INDEXES, schema))
        for _, name in indexes:
            await connection.execute(f"drop index {name}")
        await connection.execute(f"alter table {schema}.jobs disable trigger user")
        for first, end in _chunks(jobs, tell):
            await connection.execute(in_schema(_POSTGRES, schema), first, end, now - _DAY, jobs, timeout=None)
        tell("indexes them")
        for sql, _ in indexes:
            await connection.execute(sql)
        await connection.execute(f"alter table {schema}.jobs enable trigger user")
        tagged = (
            "insert into demora.job_tags (tag, job_id) select tags::json ->> 0, id from demora.jobs where tags is not null"
        )
        await connection.execute(in_schema(tagged, schema))
        names = [(f"q{n}",) for n in range(QUEUES)]
        await connection.executemany(f"insert into {schema}.queues (name) values ($1) on conflict do nothing", names)
        columns = ("width", "at", "queue", "type", "tally")
        await connection.copy_records_to_table("statistics", schema_name=schema, columns=columns, records=_statistics(now))
        for table in ("jobs", "job_tags", "statistics"):
            await connection.execute(f"vacuum analyze {schema}.{table}")
    finally:
        await connection.close()


def _statistics(now: int) -> list[tuple[int, int, str, str, str]]:
    """The windows of each type, and how many jobs waited in each queue: narrow ones of the last hour, wide ones of the
    week."""
    late, ran = dict.fromkeys(range(12, 22), 4), dict.fromkeys(range(20, 30), 4)
    runs = text(Tally(completed=40, failed=1, realtime=late, run=ran))
    depths, found = text(Tally(ready=5000, waiting=40_000)), []
    for width, since, until in ((WINDOW, HOUR, timedelta(0)), (MINUTE, DAY, HOUR), (HOUR, 7 * DAY, DAY)):
        ms = span_ms(width)
        for at in range(begin_of(now - span_ms(since), ms) + ms, begin_of(now - span_ms(until), ms), ms):
            found += [(ms, at, f"q{n % QUEUES}", f"t{n}", runs) for n in range(TYPES)]
            if width is not WINDOW or at % span_ms(MINUTE) == 0:
                found += [(max(ms, span_ms(MINUTE)), at, f"q{n}", "", depths) for n in range(QUEUES)]
    return found
