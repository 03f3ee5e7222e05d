"""Statements that are run often stay short: they seek in an index and never walk it."""

from datetime import timedelta
from typing import Any

import pytest

from demora.core.job import Priority
from demora.engines.sql.constants import MANY_HEADS
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection.connections import SQL
from demora.engines.sqlite.jobs import heads
from demora.store.jobs import ClaimRequest
from tests.builders import DONE, claim, new_job, settlement

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "heads": (-1,),
    "heads_of_queues": ('["q"]',),
    "head": ("q", 0, 0),
    "due_of_type": ("t", 1, 0, 1),
    "coming_of_type": ("t", 1, 0),
    "claim_scan": ("q", 0, 0, 0, 1),
    "lapsed": (0, 1),
    "next_lapse": (),
}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_claim_reads_jobs_through_an_index_only(store: SqliteStore, name: str) -> None:
    plan = await store._database.bare(lambda db: list(db.execute(f"explain query plan {SQL[name]}", ARGUMENTS[name])))
    steps = [detail for *_, detail in plan if "jobs" in detail or "next" in detail]
    assert steps
    assert all("INDEX jobs_" in step or "INTEGER PRIMARY KEY" in step for step in steps), steps
    assert not any("TEMP B-TREE" in detail for *_, detail in plan), plan


async def test_delayed_rows_cost_a_claim_no_steps(store: SqliteStore) -> None:
    await store.add([new_job(delay=timedelta(hours=1))])
    few = await _steps(store, "heads", -1)
    await store.add([new_job(delay=timedelta(hours=1, seconds=n)) for n in range(5000)])
    assert await _steps(store, "heads", -1) <= few * 1.1
    assert (await claim(store)).jobs == []


async def test_queues_without_due_jobs_cost_a_claim_few_steps(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "of_all", None)  # which would take a step for each queue
    await store.add([new_job(queue=f"q{n}", delay=timedelta(hours=1 + n)) for n in range(2 * MANY_HEADS)])
    await store.add([new_job(queue="other", type="unknown")])
    await store.add([new_job(queue="q7", priority=Priority.LOW), new_job(queue="q9")])
    claimed = await store.claim(ClaimRequest("w", 10, lease=timedelta(seconds=30), types={"demo.echo"}))
    assert [job.queue for job in claimed.jobs] == ["q9", "q7"]
    assert claimed.next_in is not None
    assert timedelta(seconds=29) <= claimed.next_in <= timedelta(seconds=30)  # when their leases lapse
    idle = await store.claim(ClaimRequest("w", 10, lease=timedelta(hours=9), types={"demo.echo"}, queues=["q3", "q4"]))
    assert idle.next_in is not None


async def test_parked_rows_cost_a_claim_of_their_type_no_steps(store: SqliteStore) -> None:
    await store.add([new_job(type="other")])
    assert (await claim(store, types=frozenset({"demo.echo"}))).parked == {"other"}
    asked = ('["other"]', "[4,5,6,7]", "[0,1,2,3]")
    few = await _steps(store, "parked_heads", *asked)
    await store.add([new_job(type="other") for _ in range(3000)])
    assert await _steps(store, "parked_heads", *asked) <= few * 1.1
    assert len((await claim(store, 9, types=frozenset({"other"}))).jobs) == 9


async def test_ended_rows_cost_whoever_looks_for_kinds_of_them_no_steps(store: SqliteStore) -> None:
    await _end(store, 1)
    few = await _steps(store, "ended_kinds")
    await _end(store, 2000)
    assert await _steps(store, "ended_kinds") <= few * 1.1


async def _end(store: SqliteStore, number: int) -> None:
    await store.add([new_job() for _ in range(number)])
    await store.settle([settlement(job, DONE) for job in (await claim(store, number)).jobs])


async def _steps(store: SqliteStore, name: str, *arguments: int | str) -> int:
    """The steps of SQLite's machine that a statement takes."""

    def count(db: Any) -> int:
        counted = 0

        def step() -> bool:
            nonlocal counted
            counted += 1
            return False

        db.set_progress_handler(step, 1)
        list(db.execute(SQL[name], arguments))
        db.set_progress_handler(None)
        return counted

    return await store._database.bare(count)
