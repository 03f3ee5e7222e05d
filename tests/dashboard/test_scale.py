"""No page counts or scans: beside many ended jobs a page reads no more than beside few."""

import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from bench import busy_day
from bench.counting import statements as statements_of
from bench.dashboard import PAGES as BUSY_PAGES
from bench.laden import ROWS
from bench.million import HUNDRED_BYTES
from demora import Demora
from demora.api import make_api
from demora.core.job import Lane
from demora.core.states import Status
from demora.dashboard.asgi import service_dashboard
from demora.engines.postgres.connection.connections import Session, Statement, in_schema, statements
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection.connections import SQL
from demora.runtime.front import Front
from demora.settings import Settings
from demora.system.clock import SystemClock
from tests.dashboard.conftest import BASE, Browser
from tests.dashboard.lively import make_lively
from tests.setups import postgres_store

PAGES = (
    "",
    "?span=day",
    "?span=week",
    "/jobs",
    "/jobs?q=status:waiting",
    "/jobs?q=status:completed",
    "/jobs?q=status:failed",
)
PAGES += ("/jobs?q=type:email.*", "/jobs?q=tag:vip", "/jobs?q=queue:mail+status:completed")
PAGES += ("/queues", "/queues/newsletter", "/schedules", "/failures", "/system")
MANY = 20_000
DAY = 86_400_000
WRITES = re.compile(r"\b(insert|update|delete|notify|pg_notify)\b", re.IGNORECASE)
ENDED = ("01", -DAY, Status.COMPLETED.value, Lane.REALTIME.value)
SQLITE_ROWS = f"""
with recursive made (n) as (select 1 union all select n + 1 from made where n < ?1)
insert into jobs (id, type, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, token, payload,
                  worker_id, claimed_at, started_at, completed_at, result)
select unhex(?2 || '000000000070008000' || printf('%012x', n)), 'bench.noop', 'default', ?4, ?5, 2, ?3 + n, ?3 + n - {DAY},
    3, 1000, 1, '{json.dumps(HUNDRED_BYTES)}', 'bench', ?3 + n, ?3 + n, ?3 + n + 5, '{{"ok":true}}'
from made
"""
# What all pages of a process share, and read at most for a twentieth of the time: counts of waiting jobs and dead letters.
SHARED = ("activity_due", "coming", "dead_letters", "overview_waiting", "overview_ahead_waiting")
SHARED_OF_SQLITE, SHARED_OF_POSTGRES = (*SHARED, "count_waiting", "count_dead"), (*SHARED, "all_queues")
FEWER, MORE = 20_000, 100_000  # jobs of all states
LIST = "a list"


@contextmanager
def steps_of_sqlite() -> Iterator[Counter[str]]:
    """Count the steps of SQLite's machine, by statement, on every connection that is opened within."""
    steps: Counter[str] = Counter()

    def seen(event: dict[str, Any]) -> None:
        steps[event["sql"]] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def watch(db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, seen)

    apsw.connection_hooks.append(watch)
    try:
        yield steps
    finally:
        apsw.connection_hooks.remove(watch)


@contextmanager
def rows_of_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the rows of `jobs` that each statement reads, whether they match or not."""
    counted: Counter[str] = Counter()
    rows = Session.rows

    async def explaining(session: Session, statement: str | Statement, **what: Any) -> list[Any]:
        sql, names = session._statements[statement] if isinstance(statement, str) else statement
        if not WRITES.search(sql):
            explained = Statement(f"explain (analyze, timing off, format json) {sql}", names)
            [[plan]] = await rows(session, explained, **dict(what))
            counted[sql] += sum(_rows_of_jobs(json.loads(plan)[0]["Plan"]))
        return await rows(session, statement, **what)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "rows", explaining)
        yield counted


def _rows_of_jobs(plan: dict[str, Any]) -> Iterator[float]:
    if plan.get("Relation Name") == "jobs" or plan.get("Index Name", "").startswith("jobs_"):
        removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        yield (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    for part in plan.get("Plans", []):
        yield from _rows_of_jobs(part)


async def cost_of_pages(app: Demora, paths: list[str], counted: Counter[str]) -> dict[str, Counter[str]]:
    """What each page reads on a new dashboard, which shares nothing with an earlier one."""
    found = {}
    for path in paths:
        async with _browser(app) as browser:
            before = counted.copy()
            live = "rows=" in path
            answer = await (browser.live if live else browser.get)(f"/dashboard{path}")
            assert answer.status_code == 200, path
            found[path] = counted - before
    return found


@asynccontextmanager
async def _browser(app: Demora) -> AsyncIterator[Browser]:
    front = Front(make_api(app, Settings()), service_dashboard(app, Settings()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        yield Browser(http)


async def paths_of(app: Demora) -> list[str]:
    client = await app.open()
    named = await make_lively(client)
    ids = [job.id for job in (await client.find(limit=50)).jobs]
    return [*PAGES, f"/jobs?rows={','.join(ids)}", *(f"/jobs/{id}" for id in named.values())]


def judge(few: dict[str, Counter[str]], many: dict[str, Counter[str]], spare: int) -> None:
    """A page of a list of completed jobs is full only beside many of them, so a page may read a little more."""
    grown = {
        path: (many[path] - cost).most_common(2)
        for path, cost in few.items()
        if many[path].total() > 1.2 * cost.total() + spare
    }
    assert grown == {}
    assert few["/jobs"].total() > 0


async def test_a_page_takes_sqlite_no_more_steps_beside_many_ended_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with steps_of_sqlite() as counted:
        async with Demora(store=SqliteStore(file, clock=SystemClock())) as app:
            paths = await paths_of(app)
            await cost_of_pages(app, paths, counted)
            few = await cost_of_pages(app, paths, counted)
        now = int(time.time() * 1000)
        prefix, after, status, lane = ENDED
        with apsw.Connection(str(file)) as db:
            db.execute(SQLITE_ROWS, (MANY, prefix, now + after, status, lane))
            db.execute("analyze")
        async with Demora(store=SqliteStore(file, clock=SystemClock())) as app:
            many = await cost_of_pages(app, paths, counted)
    judge(few, many, spare=12_000)  # 50 rows of a list, explained


@pytest.mark.slow
async def test_a_page_reads_no_more_rows_of_postgres_beside_many_ended_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres_store(tmp_path, SystemClock())
    async with Demora(store=store) as app:
        paths = await paths_of(app)
        await _analyze(store)
        with rows_of_postgres(monkeypatch) as counted:
            few = await cost_of_pages(app, paths, counted)
        async with store._database.opened().session() as session:
            rows = Statement(in_schema(ROWS, store.options.schema), ("count", "prefix", "after", "status", "lane"))
            prefix, after, status, lane = ENDED
            await session.rows(rows, count=MANY, prefix=prefix, after=after, status=status, lane=lane)
        await _analyze(store)
        with rows_of_postgres(monkeypatch) as counted:
            many = await cost_of_pages(app, paths, counted)
    judge(few, many, spare=300)


@pytest.mark.slow
async def test_only_shared_counts_take_sqlite_more_steps_beside_more_jobs_of_all_states(tmp_path: Path) -> None:
    found = []
    with steps_of_sqlite() as counted:
        for jobs in (FEWER, MORE):
            file = tmp_path / f"{jobs}.db"
            async with Demora(store=SqliteStore(file, clock=SystemClock())):
                pass
            await busy_day.fill(f"sqlite:///{file}", jobs)
            async with Demora(store=SqliteStore(file, clock=SystemClock())) as app:
                found.append(await cost_of_pages(app, await busy_paths(app), counted))
    judge_statements(*found, {SQL[name] for name in SHARED_OF_SQLITE}, spare=12_000)


@pytest.mark.slow
async def test_only_shared_counts_read_more_rows_of_postgres_beside_more_jobs_of_all_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for jobs in (FEWER, MORE):
        store = postgres_store(tmp_path / str(jobs), SystemClock())
        async with Demora(store=store) as app:
            await busy_day.fill(store.url, jobs, schema=store.options.schema)
            with rows_of_postgres(monkeypatch) as counted:
                costs = await cost_of_pages(app, await busy_paths(app), counted)
        names = {statement.sql: name for name, statement in statements(store.options.schema).items()}
        found.append({path: _named(cost, names) for path, cost in costs.items()})
    judge_statements(*found, {*SHARED_OF_POSTGRES, LIST}, spare=400)
    assert max(cost[LIST] for cost in found[1].values()) <= 200 * 3 * busy_day.QUEUES + 400
    assert found[1]["/jobs?q=status:waiting"][LIST] <= 51 * 3 * busy_day.QUEUES + 400  # all that it reads match


async def test_why_the_jobs_of_a_list_wait_takes_no_more_statements_in_many_queues(tmp_path: Path) -> None:
    taken = []
    with statements_of() as counted:
        async with Demora(store=postgres_store(tmp_path, SystemClock())) as app:
            client = await app.open()
            for queues in (1, 20):
                ids = [(await client.enqueue("demo.echo", queue=f"q{n % queues}")).id for n in range(20)]
                before = counted["statements"]
                assert len(await client.why_many(ids)) == 20
                taken.append(counted["statements"] - before)
    assert taken[1] <= taken[0] + 3  # a store also has statements of its own


def _named(cost: Counter[str], names: dict[str, str]) -> Counter[str]:
    """What statements cost, by their names; those of lists, which are put together, are one. A list reads the first 200 jobs
    of each queue and lane."""
    named = Counter[str]()
    for sql, rows in cost.items():
        named[names.get(sql, LIST)] += rows
    return named


async def busy_paths(app: Demora) -> list[str]:
    """The pages of the bench, a job, and the refresh of a list of ready jobs."""
    ids = [job.id for job in (await (await app.open()).find("status:waiting", limit=50)).jobs]
    return [*BUSY_PAGES, f"/jobs/{ids[0]}", f"/jobs?rows={','.join(ids)}"]


def judge_statements(fewer: dict[str, Counter[str]], more: dict[str, Counter[str]], shared: set[str], *, spare: int) -> None:
    """A list may be full only beside more jobs, so a statement may read a little more."""
    grown = {
        (path[:40], sql): (few[sql], cost)
        for (path, few), found in zip(fewer.items(), more.values(), strict=True)
        for sql, cost in found.items()
        if cost > 1.2 * few[sql] + spare and sql not in shared
    }
    assert grown == {}


async def _analyze(store: Any) -> None:
    async with store._database.opened().session() as session:
        await session.script(f"analyze {store.options.schema}.jobs")
