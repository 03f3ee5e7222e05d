"""What a statement reads does not grow with what waits, although its plan was made when nothing did."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from demora.core.pace_wish import PaceWish
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connections import Session
from demora.line import Entry
from demora.store import Change, Report
from tests.builders import DONE, LEASE, add_ids, claim, job_of, new_job, seconds, settlement

WAITING, FEW = 2000, 3
MOST = 100  # rows of jobs, and entries of its indexes, that a statement may read for a few jobs
READ = """
select pg_stat_get_xact_tuples_returned($1::regclass) + sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint
from pg_index where indrelid = $1::regclass
"""


@pytest.fixture
async def store(url: str, schema: str) -> AsyncIterator[PostgresStore]:
    """A store that keeps to one connection, and so to its plans."""
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1, notify=False))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def read(schema: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The most that each statement has read at once."""
    most: Counter[str] = Counter()
    rows = Session.rows

    async def counted(self: Session, statement: str, **what: Any) -> list[Any]:
        async with self.transaction():
            before = await self._connection.fetchval(READ, f"{schema}.jobs")
            found = await rows(self, statement, **what)
            after = await self._connection.fetchval(READ, f"{schema}.jobs")
        most[statement] = max(most[statement], after - before)
        return found

    monkeypatch.setattr(Session, "rows", counted)
    return most


async def test_the_verbs_of_a_worker_and_of_its_line_read_few_rows(store: PostgresStore, read: Counter[str]) -> None:
    await store.begin_lining()
    await store.set_pace("paced", PaceWish(gap=seconds(1)), by="ann")
    await _live(store)
    before = await store.position()
    for _ in range(4):
        await store.add([new_job() for _ in range(WAITING // 4)])
        await store.add([new_job(queue="paced", delay=seconds(0.01)) for _ in range(WAITING // 4)])
    read.clear()
    await _live(store)
    await store.moved(before, seconds(600), FEW)
    assert {"draw", "claim", "settle", "renew", "listen", "moved", "let_go"} <= read.keys()
    assert {name: rows for name, rows in read.items() if rows > MOST} == {}


async def _live(store: PostgresStore) -> None:
    """Lead a few jobs through what they meet."""
    position = await store.position()
    drawn, changed, cancelled, _ = [await add_ids(store, *[{}] * FEW) for _ in range(4)]
    moved = await store.moved(position, seconds(600), FEW)
    assert moved is not None
    assert len(moved.places) == FEW
    await store.standings(drawn)
    jobs = (await store.draw("ann", [Entry(id, "default") for id in drawn], lease=LEASE)).claimed.jobs
    assert [job.lease.id for job in jobs] == drawn
    await store.renew([Report(job.lease, seconds(0)) for job in jobs], lease=LEASE)
    await store.listen([job.lease for job in jobs])
    await store.settle([settlement(job, DONE) for job in jobs])
    assert len((await claim(store, FEW)).jobs) == FEW
    await store.change(changed[0], Change(delay=seconds(60)))
    await store.cancel(cancelled)
    await store.retry(cancelled)
    await store.remove(cancelled)
    await store.release()
    await job_of(store, drawn[0])
