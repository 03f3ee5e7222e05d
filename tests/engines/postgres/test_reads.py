"""What a statement reads does not grow with what waits and has ended, whatever the planner knew when it made its plan."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from demora.core.filters import JobFilter, TimeRange, sort_of
from demora.core.job import Priority, Unique
from demora.core.pace import PaceRequest
from demora.core.retention import Keep, Retention
from demora.core.states import WAITING, Status
from demora.core.verdict import Cancelled, Raised
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection.connections import Session, Statement
from demora.engines.postgres.jobs import finding, runs
from demora.engines.sql import walks
from demora.store.jobs import Change, ClaimRequest, Query, Report
from demora.store.line_feed import Entry
from tests.builders import BROKEN, DONE, LEASE, add_ids, claim, job_of, key, new_job, seconds, settlement
from tests.clock import TestClock

MANY, FEW = 700, 3  # of each kind of jobs there are, and those that are led through their lives
MOST = 150  # rows, and entries of indexes, that a statement may read for a few jobs
CROWD = 3000  # jobs of other types, or queue names
PAGES_OF_A_FEW = 15  # of an index that a claim of a few jobs may read, in several scans
MET = 400  # rows and entries that a claim may read before it has parked the jobs of other types that it met
READ = """
select sum(pg_stat_get_xact_tuples_returned(pg_class.oid))::bigint from pg_class
where relnamespace = $1::regnamespace and relkind in ('r', 'i')
"""
PAGES = """
select pg_stat_get_xact_blocks_fetched($1::text::regclass) as fetched,
    pg_relation_size($1::text::regclass) / current_setting('block_size')::int as pages
"""
KEPT = Retention(*[Keep(age=seconds(3600))] * 3)


@pytest.fixture
async def store(url: str, schema: str, clock: TestClock) -> AsyncIterator[PostgresStore]:
    """A store that keeps to one connection, and so to its plans."""
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1, notify=False), clock=clock)
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
            before = await self._connection.fetchval(READ, schema)
            found = await rows(self, statement, **what)
            after = await self._connection.fetchval(READ, schema)
        most[statement] = max(most[statement], after - before)
        return found

    monkeypatch.setattr(Session, "rows", counted)
    return most


@pytest.mark.slow
@pytest.mark.parametrize("analyzed", ["never", "empty", "full"])
async def test_verbs_about_a_few_jobs_read_a_few_rows(
    store: PostgresStore, clock: TestClock, schema: str, read: Counter[str], analyzed: str
) -> None:
    await store.line_feed.begin()
    await store.paces.set("paced", PaceRequest(gap=seconds(1), stagger=seconds(0.1), rapid=False), by="ann")
    if analyzed == "empty":
        await _analyze(store, schema)
    await _live(store, clock, "before")
    position = await store.line_feed.position()
    await _lade(store, clock)
    if analyzed == "full":
        await _analyze(store, schema)
    await _live(store, clock, "meanwhile")  # whoever first comes to what has moved on marks it as dead
    read.clear()
    await _live(store, clock, "after")
    await store.line_feed.moved(position, seconds(600), FEW)
    expected = {
        "claim",
        "claim_of_queues",
        "claim_of_types",
        "claim_by_ids",
        "settle",
        "renew",
        "lease_status",
        "moved",
        "release_held",
        "walk",
    }
    expected |= {"cancel", "retry", "lock", "delete", "change", "expire", "purge"}
    expected |= {"purge_keys", "unique_waiting", "keys_taken"}
    assert expected <= read.keys()
    assert {name: rows for name, rows in read.items() if rows > MOST} == {}


@pytest.mark.parametrize("analyzed", ["never", "full"])
async def test_a_claim_that_meets_many_jobs_of_other_types_reads_a_few_rows(
    store: PostgresStore, schema: str, read: Counter[str], monkeypatch: pytest.MonkeyPatch, analyzed: str
) -> None:
    monkeypatch.setattr(runs, "PARKED_AT_ONCE", 50)
    await store.add([new_job(type="strange") for _ in range(CROWD)])
    if analyzed == "full":
        await _analyze(store, schema)
    assert (await claim(store, FEW, types=frozenset({"known"}))).parked == {"strange"}
    assert {"claim", "park"} <= read.keys()
    assert {name: rows for name, rows in read.items() if rows > MET} == {}


@pytest.mark.parametrize("analyzed", ["never", "full"])
async def test_verbs_beside_many_queue_names_read_a_few_rows(
    store: PostgresStore, schema: str, read: Counter[str], monkeypatch: pytest.MonkeyPatch, analyzed: str
) -> None:
    monkeypatch.setattr(runs, "MANY_HEADS", 10)
    await store.add([new_job(queue=f"q{n}", delay=seconds(3000)) for n in range(CROWD)])
    if analyzed == "full":
        await _analyze(store, schema)
    await add_ids(store, *[{"queue": "the last"}] * 2 * FEW)
    read.clear()
    jobs = (await claim(store, 2 * FEW, types=frozenset({new_job().type}))).jobs
    await store.settle([settlement(job, DONE) for job in jobs[:FEW]])
    await store.settle([settlement(job, Raised("no")) for job in jobs[FEW:]])
    await store.cancel([job.lease.id for job in jobs])
    assert {"claim", "claim_of_types", "complete", "settle", "cancel"} <= read.keys()
    assert {name: rows for name, rows in read.items() if rows > MOST} == {}


@pytest.mark.parametrize("analyzed", ["never", "full"])
async def test_a_claim_by_ids_of_a_few_jobs_of_a_long_queue_reads_a_few_rows(
    store: PostgresStore, schema: str, read: Counter[str], analyzed: str
) -> None:
    await store.line_feed.begin()
    await store.add([new_job() for _ in range(CROWD)])
    handed_out = await add_ids(store, *[{}] * FEW)
    if analyzed == "full":
        await _analyze(store, schema)
    entries = [Entry(id, new_job().queue) for id in handed_out]
    jobs = (await store.line_feed.claim_by_ids(ClaimRequest("ann", FEW, lease=LEASE), entries)).claimed.jobs
    assert [job.lease.id for job in jobs] == handed_out
    assert 0 < read["claim_by_ids"] <= MOST


async def test_a_claim_passes_the_index_entries_of_parked_jobs_once(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([new_job(type="strange") for _ in range(CROWD)])
    while (await claim(store, types=frozenset({"known"}))).parked:
        pass
    await add_ids(store, *[{"type": "known"}] * FEW)
    store._claim_memory.parked.forget()  # as if its last claim had met more ready jobs
    fetched = _pages_of_waiting(schema, monkeypatch)
    assert len((await claim(store, FEW, types=frozenset({"known"}))).jobs) == FEW
    async with store._database.opened().session() as session:
        pages = (await session._connection.fetchrow(PAGES, f'"{schema}".jobs_waiting'))["pages"]
    assert max(fetched) < pages


async def test_a_claim_beside_parked_jobs_does_not_pass_their_index_entries(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([new_job(type="strange") for _ in range(CROWD)])
    while (await claim(store, types=frozenset({"known"}))).parked:
        pass
    await add_ids(store, *[{"type": "known"}] * FEW)
    fetched = _pages_of_waiting(schema, monkeypatch)
    assert len((await claim(store, FEW, types=frozenset({"known"}))).jobs) == FEW
    assert sum(fetched) < PAGES_OF_A_FEW


async def test_a_page_of_jobs_of_a_time_takes_one_walk_and_returns_no_more_than_it_shows(
    store: PostgresStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (walks, finding):
        monkeypatch.setattr(module, "DISORDER", MANY // 2)  # as if there were more jobs
    began = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC)
    await store.add([new_job() for _ in range(MANY)])
    clock.turn(60)
    await store.add([new_job() for _ in range(MANY)])
    walked = _walks(monkeypatch)
    page = await store.find(Query(JobFilter(created=TimeRange(began, began + seconds(30))), limit=FEW))
    assert len(page.jobs) == FEW
    [(_, returned)] = walked
    assert returned <= FEW + 2  # one to know that there are more, and the last one that was read


async def test_a_page_of_jobs_that_surely_match_reads_no_others(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([new_job() for _ in range(FEW + 2)])
    jobs = (await claim(store, FEW + 2)).jobs
    await store.settle([settlement(job, DONE) for job in jobs])
    walked = _walks(monkeypatch)
    page = await store.find(Query(*sort_of(JobFilter(statuses=frozenset({Status.COMPLETED}))), limit=FEW))
    assert len(page.jobs) == FEW
    assert walked == [(FEW + 1, FEW + 1)]


async def test_a_page_of_waiting_jobs_of_a_queue_reads_no_others(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([new_job() for _ in range(FEW + 2)])
    walked = _walks(monkeypatch)
    page = await store.find(Query(*sort_of(JobFilter(statuses=WAITING, queue=new_job().queue)), limit=FEW))
    assert len(page.jobs) == FEW
    assert walked == [(FEW + 1, FEW + 1)]


def _pages_of_waiting(schema: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages of the index of waiting jobs that each statement from now on reads."""
    fetched: list[int] = []
    rows = Session.rows

    async def counted(self: Session, statement: str, **what: Any) -> list[Any]:
        async with self.transaction():
            before = await self._connection.fetchrow(PAGES, f'"{schema}".jobs_waiting')
            found = await rows(self, statement, **what)
            after = await self._connection.fetchrow(PAGES, f'"{schema}".jobs_waiting')
        fetched.append(after["fetched"] - before["fetched"])
        return found

    monkeypatch.setattr(Session, "rows", counted)
    return fetched


def _walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The jobs that each walk of a list from now on may read, and those that it returned."""
    walked: list[tuple[int, int]] = []
    rows = Session.rows

    async def noted(self: Session, statement: str | Statement, **what: Any) -> list[Any]:
        found = await rows(self, statement, **dict(what))
        if isinstance(statement, Statement):
            walked.append((what["chunk"], len(found)))
        return found

    monkeypatch.setattr(Session, "rows", noted)
    return walked


async def _analyze(store: PostgresStore, schema: str) -> None:
    async with store._database.opened().session() as session:
        for table in ("jobs", "attempts", "logs", "idempotency_keys", "queues"):
            await session.script(f'analyze "{schema}".{table}')


async def _lade(store: PostgresStore, clock: TestClock) -> None:
    """Have many jobs of every kind: that wait, are held, expire, have a key, run and have ended."""
    for queue, options in (
        ("default", {}),
        ("paced", {"delay": seconds(0.01)}),
        ("later", {"delay": seconds(300)}),
        ("expiring", {"delay": seconds(3000), "expires_in": seconds(9000)}),
        ("running", {}),
    ):
        await store.add([new_job(queue=queue, **options) for _ in range(MANY)])
    await store.add([new_job(queue="later", delay=seconds(3000), key=key(f"k{n}")) for n in range(MANY)])
    await store.add([new_job(queue="later", delay=seconds(3000), unique=Unique(f"u{n}")) for n in range(MANY // 7)])
    clock.turn(1)
    assert len((await claim(store, MANY, queues=["running"])).jobs) == MANY
    for outcome in (DONE, BROKEN, Cancelled("no need")):
        await store.add([new_job(queue="ended") for _ in range(MANY)])
        jobs = (await claim(store, MANY, queues=["ended"])).jobs
        await store.settle([settlement(job, outcome) for job in jobs])


async def _live(store: PostgresStore, clock: TestClock, when: str) -> None:
    """Lead a few jobs through all that they can meet."""
    position = await store.line_feed.position()
    handed_out, changed, cancelled, _ = [await add_ids(store, *[{"queue": when}] * FEW) for _ in range(4)]
    moved = await store.line_feed.moved(position, seconds(600), FEW)
    assert moved is not None
    assert len(moved.places) == FEW
    await store.line_feed.row_places(handed_out)
    jobs = (
        await store.line_feed.claim_by_ids(
            ClaimRequest("ann", len(handed_out), lease=LEASE), [Entry(id, when) for id in handed_out]
        )
    ).claimed.jobs
    assert [job.lease.id for job in jobs] == handed_out
    await store.renew([Report(job.lease, seconds(0), log=((seconds(0), "a line"),)) for job in jobs], lease=LEASE)
    await store.lease_status([job.lease for job in jobs])
    await store.settle([settlement(job, Raised("no")) for job in jobs])
    assert len((await claim(store, FEW, queues=[when])).jobs) == FEW
    await add_ids(store, *[{"queue": when, "type": "rare"}] * FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MANY_HEADS", 3)  # as if there were very many queues
        assert len((await claim(store, FEW, types=frozenset({"rare"}))).jobs) == FEW
    assert len((await claim(store, FEW)).jobs) == FEW
    await store.change(changed[0], Change(delay=seconds(60)))
    await store.change(changed[1], Change(priority=Priority.HIGH))
    await store.cancel(cancelled)
    await store.retry(cancelled)
    await store.cancel(cancelled)
    await store.remove(cancelled)
    await store.paces.release()
    await store.line_feed.walk(seconds(100), FEW)
    await add_ids(store, *[{"queue": when, "unique": Unique(when)}] * 2)
    await add_ids(store, {"queue": when, "unique": Unique(when, replace=True)})
    await add_ids(store, *[{"queue": when, "key": key(f"{when}{n}")} for n in range(FEW)])
    await add_ids(store, {"queue": when, "key": key(f"{when}0")})
    await add_ids(store, *[{"queue": when, "expires_in": seconds(1)}] * FEW)
    clock.turn(2)
    await store.housekeep(KEPT, limit=200)
    await store.purge(Status.COMPLETED, older_than=seconds(0), limit=FEW)
    await store.purge(Status.CANCELLED, older_than=seconds(0), limit=FEW, queue="ended")
    await job_of(store, handed_out[0])
