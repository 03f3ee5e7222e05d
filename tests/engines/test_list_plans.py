"""Each list that must be quick with millions of jobs walks the index that is made for it, and sorts nothing below it."""

import re
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import pytest

from demora.core.filters import JobFilter, Sort, TimeRange, sort_of
from demora.core.states import Status
from demora.core.verdict import Raised
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection.connections import Session, Statement
from demora.engines.sql.walks import Walk, walk_of
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.jobs import finding as sqlite_finding
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import claim, ended_one, new_job, settlement
from tests.clock import TestClock
from tests.setups import postgres_url

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
AN_HOUR = TimeRange(NOW - HOUR, NOW)


def of(*statuses: Status, **parts: Any) -> JobFilter:
    return JobFilter(statuses=frozenset(statuses), **parts)


LISTS: dict[str, tuple[JobFilter, Walk]] = {
    "all": (JobFilter(), Walk.ALL),
    "processing": (of(Status.PROCESSING), Walk.PROCESSING),
    "completed": (of(Status.COMPLETED), Walk.ENDED_OF_QUEUE),
    "failed": (of(Status.FAILED), Walk.ENDED_OF_QUEUE),
    "cancelled": (of(Status.CANCELLED), Walk.ENDED_OF_QUEUE),
    "queued": (of(Status.QUEUED), Walk.DUE_OF_QUEUE),
    "retrying": (of(Status.RETRYING), Walk.RETRYING),
    "completed in a queue": (of(Status.COMPLETED, queue="mail"), Walk.ENDED_OF_QUEUE),
    "queued in a queue": (of(Status.QUEUED, queue="mail"), Walk.DUE_OF_QUEUE),
    "retrying in a queue": (of(Status.RETRYING, queue="mail"), Walk.RETRYING),
    "failed of a type": (of(Status.FAILED, type="a"), Walk.ENDED_OF_TYPE),
    "failed of types": (of(Status.FAILED, type="a*"), Walk.ENDED_OF_TYPE),
    "queued of a type": (of(Status.QUEUED, type="a"), Walk.DUE_OF_TYPE),
    "retrying of types": (of(Status.RETRYING, type="a*"), Walk.DUE_OF_TYPE),
    "with a tag": (JobFilter(tags=("some",)), Walk.TAG),
    "failed with an error": (of(Status.FAILED, error="Timeout"), Walk.DEAD_OF_ERROR),
    "with an error": (JobFilter(error="Timeout"), Walk.OF_ERROR),
    "of a type with an error": (JobFilter(type="a", error="Timeout"), Walk.OF_ERROR),
    "created in a range": (JobFilter(created=AN_HOUR), Walk.CREATED),
    "ended in a range": (JobFilter(ended=AN_HOUR).checked(), Walk.ENDED_OF_QUEUE),
    "due in a range": (JobFilter(due=AN_HOUR).checked(), Walk.DUE_OF_QUEUE),
}
INDEXES = {
    Walk.ALL: "jobs_id_key",
    Walk.CREATED: "jobs_pkey",
    Walk.PROCESSING: "jobs_leased",
    Walk.ENDED_OF_QUEUE: "jobs_ended",
    Walk.ENDED_OF_TYPE: "jobs_ended_of_type",
    Walk.DEAD_OF_ERROR: "jobs_dead_of_error",
    Walk.OF_ERROR: "jobs_of_error",
    Walk.DUE_OF_QUEUE: "jobs_waiting",
    Walk.DUE_OF_TYPE: "jobs_waiting_of_type",
    Walk.RETRYING: "jobs_retrying",
    Walk.TAG: "job_tags_pkey",
}
SQLITE_NAMES = {"jobs_id_key": "sqlite_autoindex_jobs_1", "jobs_pkey": "INTEGER PRIMARY KEY", "job_tags_pkey": "PRIMARY KEY"}


async def fill(store: Store) -> None:
    """Some jobs of every kind, most of them ended."""
    await store.add([new_job(type="ab"[n % 2], queue=("mail", "sms")[n % 3 % 2], tags=("some",)) for n in range(600)])
    claimed = (await claim(store, 500)).jobs
    await store.settle([settlement(job, Raised("no")) for job in claimed[:100]])
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
        await ended_one(store, status, type="a", queue="mail")


@pytest.fixture
async def sqlite(clock: TestClock) -> Any:
    store = SqliteStore(clock=clock)
    await store.open()
    await fill(store)
    await store._database.bare(lambda db: db.execute("analyze"))
    yield store
    await store.close()


@pytest.fixture
async def postgres(clock: TestClock) -> Any:
    store = PostgresStore(postgres_url(), PostgresOptions(schema=f"t_{token_hex(6)}", connections=2), clock=clock)
    await store.open()
    await fill(store)
    async with store._database.opened().session() as session:
        await session.script(f"analyze {store.options.schema}.jobs; analyze {store.options.schema}.job_tags")
    yield store
    await store.close()


@pytest.mark.parametrize("name", LISTS)
async def test_sqlite_walks_the_index_of_the_list(sqlite: SqliteStore, name: str) -> None:
    filter, walk = LISTS[name]
    query = Query(*sort_of(filter))
    assert walk_of(query) is walk
    plans: list[str] = []

    class Explaining:
        def __init__(self, db: Any) -> None:
            self._db = db

        def execute(self, sql: str, *values: Any) -> Any:
            plans.extend(f"{sql}: {row[3]}" for row in self._db.execute(f"explain query plan {sql}", *values))
            return self._db.execute(sql, *values)

    def explained(tx: Any) -> None:
        class Looking:
            db, wall, boot = Explaining(tx.db), tx.wall, tx.boot

        list(sqlite_finding._rows(Looking(), query))  # type: ignore[arg-type]

    await sqlite._database.read(explained)
    walks = [plan for plan in plans if plan.startswith(("select 0,", "select completed_at,", "select due_at,"))]
    assert any(re.search(SQLITE_NAMES.get(INDEXES[walk], rf"INDEX {INDEXES[walk]}\b"), plan) for plan in walks), plans
    assert not any(re.search(r": SCAN jobs$", plan) for plan in plans), plans
    if walk is not Walk.PROCESSING:  # few jobs run at once
        assert not any("TEMP B-TREE" in plan for plan in walks), walks


@pytest.mark.parametrize("name", LISTS)
async def test_postgres_walks_the_index_of_the_list(
    postgres: PostgresStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filter, walk = LISTS[name]
    query = Query(*sort_of(filter))
    plans: list[str] = []
    rows = Session.rows

    async def explaining(session: Session, statement: Any, **what: Any) -> list[Any]:
        if isinstance(statement, Statement):
            explained = Statement(f"explain {statement.sql}", statement.parameters)
            plans.append("\n".join(row[0] for row in await rows(session, explained, **dict(what))))
        return await rows(session, statement, **what)

    monkeypatch.setattr(Session, "rows", explaining)
    assert (await postgres.find(query)).complete
    plan = plans[0]
    assert f"using {INDEXES[walk]} on" in plan, plan
    assert "Seq Scan" not in plan
    if walk is not Walk.PROCESSING:
        assert plan.count("Sort Key") <= 2 + (query.sort is not Sort.CREATED), plan  # of what was walked, not below it
