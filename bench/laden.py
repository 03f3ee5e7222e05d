"""(j) A laden PostgreSQL: what waiting, delayed and ended jobs cost the claim.

The rows are made in the database: it is the claim that is measured, not how they came.
"""

import json
import statistics

import asyncpg

from bench.databases import Databases
from bench.million import CLAIMS, HUNDRED_BYTES, claim
from bench.stage import application
from demora.core.job import Lane
from demora.core.states import Status

DELAYED, WAITING, ENDED = 1_000_000, 100_000, 5_000_000
_DAY = 86_400_000  # milliseconds
# Ids in the order of adding, as those of demora are.
ROWS = f"""
insert into demora.jobs (id, type, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay,
                         token, payload, worker_id, claimed_at, started_at, completed_at, result)
select ($2::text || '000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'bench.noop', 'default', $4, $5, 2,
    due, due - {_DAY}, due, 3, 1000, ran, '{json.dumps(HUNDRED_BYTES)}',
    case ran when 1 then 'bench' end, case ran when 1 then due end, case ran when 1 then due end,
    case ran when 1 then due + 5 end, case ran when 1 then '{{"ok":true}}' end
from (
    select n, (extract(epoch from now()) * 1000)::bigint + $3::bigint + n as due, ($4::smallint > 3)::int as ran
    from generate_series(1, $1::int) as n
) as made
"""
_INDEXES = (
    "select indexdef, indexname from pg_indexes where tablename = 'jobs' and schemaname = 'demora' and indexname = any($1)"
)
_PARTIAL = ["jobs_waiting", "jobs_leased", "jobs_dead", "jobs_ended", "jobs_expiring", "jobs_unique"]


async def laden(on: Databases, share: float) -> dict[str, float]:
    """The median of directly timed claims of 100 ready jobs: alone in their table, and in one that holds so large a share of
    the million delayed, 100,000 ready and 5,000,000 ended ones, turn by turn."""
    async with on.new() as empty, on.new() as full:
        async with application(empty), application(full):
            pass
        size = await fill(full, share)
        async with application(empty) as alone, application(full) as beside:
            pairs = [(await claim(alone), await claim(beside)) for _ in range(CLAIMS)]
    usual, heavy = (1000 * statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "claim of 100 alone, ms": usual,
        f"claim of 100 beside {share * (DELAYED + WAITING + ENDED):,.0f}, ms": heavy,
        "claim, laden / alone": heavy / usual,
        "table and index bytes per row": size,
    }


async def fill(url: str, share: float) -> float:
    """Make the rows, and let them be seen as after the usual upkeep; answers with the bytes of each."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("insert into demora.queues (name) values ('default')")
        indexes = await connection.fetch(_INDEXES, _PARTIAL)
        for index in indexes:  # made anew afterwards, which is quicker
            await connection.execute(f"drop index demora.{index['indexname']}")
        for number, prefix, after, status, lane in (
            (ENDED, "01", -_DAY, Status.COMPLETED, Lane.REALTIME),
            (DELAYED, "02", _DAY, Status.QUEUED, Lane.SCHEDULED),
            (WAITING, "03", -_DAY // 24, Status.QUEUED, Lane.REALTIME),
        ):
            await connection.execute(ROWS, int(number * share), prefix, after, status.value, lane.value)
        for index in indexes:
            await connection.execute(index["indexdef"])
        await connection.execute("vacuum analyze demora.jobs")
        await connection.execute("checkpoint")
        size = await connection.fetchval("select pg_total_relation_size('demora.jobs')")
    finally:
        await connection.close()
    return float(size / (share * (DELAYED + WAITING + ENDED)))
