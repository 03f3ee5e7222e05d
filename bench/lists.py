"""(l) Lists of jobs in a table of five million: how long a page takes, by each thing that lists are asked for.
(t) What the indexes and triggers for lists cost: jobs enqueued and drained with and without them, in turns.

The rows are made in the database: it is the lists that are measured, not how the jobs came.
"""

import asyncio
import math
import random
import time
from datetime import UTC, datetime, timedelta

import apsw
import asyncpg

from bench.counted import drained
from bench.databases import Databases
from bench.stage import application, enqueue, producer
from demora import Demora
from demora.core.job import Lane
from demora.core.states import Status

JOBS = 5_000_000
QUEUES, TYPES, ERRORS, TAGS = 20, 50, 20, 100
TIMES, PAGE = 60, 50  # lists of each kind, and jobs on a page
TURNS = 3
# `jobs_waiting_of_type` is not among them: claims need it, beside parked jobs and very many queue names.
INDEXES = ("jobs_ended_of_type", "jobs_retrying", "jobs_dead_of_error", "jobs_of_error")
TRIGGERS = {
    "sqlite": ("tags_changed", "tags_removed"),
    "postgresql": ("tags_added", "tags_changed_1", "tags_changed_2", "tags_removed"),
}

# Of a hundred jobs 70 are completed, 5 failed, 5 cancelled, 15 delayed, and 5 in a retry. One in ten has a tag.
_STATUS = f"""case when n % 100 < 70 then {Status.COMPLETED.value} when n % 100 < 75 then {Status.FAILED.value}
    when n % 100 < 80 then {Status.CANCELLED.value} when n % 100 < 95 then {Status.QUEUED.value}
    else {Status.RETRYING.value} end"""
_COLUMNS = (
    "id, type, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, token, payload, tags, error, "
    "completed_at"
)
_VALUES = f"""
    't' || (n / 7 % {TYPES}), 'q' || (n / 100 % {QUEUES}), status,
    case when status = {Status.RETRYING.value} then {Lane.RETRY.value} else {Lane.SCHEDULED.value} end, 2,
    created + case when status < 3 then 864000000 else 0 end, created, 3, 1000, case when status = {Status.QUEUED.value}
    then 0 else 1 end, '{{"to":"user@example.com"}}', case when n % 10 = 0 then '["g' || (n / 10 % {TAGS}) || '"]' end,
    case when status = {Status.FAILED.value} then 'Error' || (n / 100 % {ERRORS}) || ': no' end,
    case when status > 3 then created + 1000 end
"""
_SQLITE = f"""
with recursive made (n) as (select 1 union all select n + 1 from made where n < :jobs),
rows as (select n, :first + n as created, {_STATUS} as status from made)
insert into jobs ({_COLUMNS}) select unhex(printf('%012x70008000%012x', created, n)), {_VALUES} from rows
"""
_POSTGRES = f"""
with rows as (select n, $2::bigint + n as created, {_STATUS} as status from generate_series(1, $1::bigint) as n)
insert into demora.jobs ({_COLUMNS})
select (lpad(to_hex(created), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid, {_VALUES} from rows
"""


async def lists(on: Databases, share: float) -> dict[str, float]:
    """The 95th percentile of the time of a page of each kind of list, in milliseconds."""
    async with on.new() as url:
        async with application(url, on.redis_url):
            pass
        await _fill(url, int(JOBS * share))
        async with application(url, on.redis_url) as app:
            found = {}
            for kind in KINDS:
                found[f"list {kind} p95 ms"] = await _p95(app, kind)
    return found | {"slowest list p95 ms": max(found.values())}


# The searches of each kind; the names in them are drawn for each list.
KINDS = {
    "by status": ("status:completed", "status:failed", "status:cancelled", "status:waiting", "status:retrying"),
    "by queue and status": ("queue:{queue} status:completed", "queue:{queue} status:failed", "queue:{queue} status:waiting"),
    "by type and status": ("type:{type} status:completed", "type:{type} status:failed", "type:{type} status:waiting"),
    "by tag": ("tag:{tag}",),
    "by error class": ("status:failed error:{error}", "error:{error}"),
    "by a range of its order": ("created:{range}", "ended:{range}", "status:completed ended:{range}"),
}


async def _p95(app: Demora, kind: str) -> float:
    client, chance, took = await app.open(), random.Random(1), list[float]()
    for number in range(TIMES):
        search = KINDS[kind][number % len(KINDS[kind])].format(
            queue=f"q{chance.randrange(QUEUES)}",
            type=f"t{chance.randrange(TYPES)}",
            tag=f"g{chance.randrange(TAGS)}",
            error=f"Error{chance.randrange(ERRORS)}",
            range=_range(chance),
        )
        began = time.perf_counter()
        page = await client.find(search, limit=PAGE, fields=())
        took.append(time.perf_counter() - began)
        if not page.complete:
            raise RuntimeError(f"the list {search!r} was not complete: it has no index")
    return 1000 * sorted(took)[len(took) * 95 // 100]


def _range(chance: random.Random) -> str:
    """Ten minutes of the last hour, in which the newest jobs were made."""
    until = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=chance.randrange(50))
    return f"{(until - timedelta(minutes=10)).strftime('%Y-%m-%dT%H:%M:%SZ')}..{until.strftime('%Y-%m-%dT%H:%M:%SZ')}"


async def _fill(url: str, jobs: int) -> None:
    first = int(time.time() * 1000) - jobs  # a job for each millisecond until now
    if url.startswith("postgresql"):
        await _fill_postgres(url, jobs, first)
    else:
        await asyncio.to_thread(_fill_sqlite, url.removeprefix("sqlite:///"), jobs, first)


def _fill_sqlite(path: str, jobs: int, first: int) -> None:
    db = apsw.Connection(path)
    with db:
        db.execute(_SQLITE, {"jobs": jobs, "first": first})
        db.execute("insert into job_tags (tag, job_id) select one.value, jobs.id from jobs, json_each(tags) as one")
        db.execute(f"insert into queues (name) select 'q' || value from json_each('{[*range(QUEUES)]}')")
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


async def _fill_postgres(url: str, jobs: int, first: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("alter table demora.jobs disable trigger user")
        await connection.execute(_POSTGRES, jobs, first, timeout=None)
        await connection.execute("alter table demora.jobs enable trigger user")
        await connection.execute(
            "insert into demora.job_tags (tag, job_id) select tags::json ->> 0, id from demora.jobs where tags is not null"
        )
        await connection.execute(
            f"insert into demora.queues (name) select 'q' || n from generate_series(0, {QUEUES - 1}) as n"
        )
        await connection.execute("vacuum analyze demora.jobs")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


async def cost(on: Databases, jobs: int) -> dict[str, float]:
    """Jobs per second with and without the indexes, the best of each, since what disturbs only makes it slower; and how
    many of the cores' seconds a drain takes without them, of those that it takes with them."""
    rates = {what: [0.0, 0.0] for what in ("enqueue_many", "drain")}
    taken = [math.inf, math.inf]
    for turn in range(TURNS):
        for indexed in (True, False) if turn % 2 else (False, True):
            measured, seconds = await _rates(on, jobs, indexed=indexed)
            taken[indexed] = min(taken[indexed], seconds)
            for what, rate in measured.items():
                rates[what][indexed] = max(rates[what][indexed], rate)
    found = {"drain CPU, without indexes for lists / with": taken[False] / taken[True]}
    for what, (without, with_) in rates.items():
        found |= {f"{what}, with indexes for lists": with_, f"{what}, without them": without}
        found[f"{what}, with indexes for lists / without"] = with_ / without
    return found


async def _rates(on: Databases, jobs: int, *, indexed: bool) -> tuple[dict[str, float], float]:
    """Jobs per second, and the seconds of a core that the drain took of the worker and the server."""
    async with producer(on) as app:
        client = await app.open()
        await client.pause("default")
        if not indexed:
            await _strip(app.settings.database_url)
        began = time.perf_counter()
        await enqueue(app, jobs)
        enqueued = jobs / (time.perf_counter() - began)
        rate, seconds = await drained(app, jobs, "bench.jobs:app")
        return {"enqueue_many": enqueued, "drain": rate}, seconds


async def _strip(url: str) -> None:
    """Drop the indexes and the triggers that only lists need."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        for index in INDEXES:
            await connection.execute(f"drop index demora.{index}")
        for trigger in TRIGGERS["postgresql"]:
            await connection.execute(f"drop trigger {trigger} on demora.jobs")
        await connection.close()
        return
    db = apsw.Connection(url.removeprefix("sqlite:///"))
    db.set_busy_timeout(10_000)
    for index in INDEXES:
        db.execute(f"drop index {index}")
    for trigger in TRIGGERS["sqlite"]:
        db.execute(f"drop trigger {trigger}")
    db.close()
