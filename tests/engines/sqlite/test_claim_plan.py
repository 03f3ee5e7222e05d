"""Statements that are run often stay short: they seek in an index and never walk it."""

from datetime import timedelta
from typing import Any

import pytest

from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connections import SQL
from tests.builders import DONE, claim, new_job, settlement

ARGUMENTS = {"claim_heads": (), "claim_scan": ("q", 0, 0, 0, 1), "lapsed": (0, 1), "next_lapse": ()}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_claim_reads_jobs_through_an_index_only(store: SqliteStore, name: str) -> None:
    plan = await store._database.bare(lambda db: list(db.execute(f"explain query plan {SQL[name]}", ARGUMENTS[name])))
    steps = [detail for *_, detail in plan if "jobs" in detail or "next" in detail]
    assert steps
    assert all("INDEX jobs_" in step or "INTEGER PRIMARY KEY" in step for step in steps), steps
    assert not any("TEMP B-TREE" in detail for *_, detail in plan), plan


async def test_delayed_rows_cost_a_claim_no_steps(store: SqliteStore) -> None:
    await store.add([new_job(delay=timedelta(hours=1))])
    few = await _steps(store, "claim_heads")
    await store.add([new_job(delay=timedelta(hours=1, seconds=n)) for n in range(5000)])
    assert await _steps(store, "claim_heads") <= few * 1.1
    assert (await claim(store)).jobs == []


async def test_ended_rows_cost_whoever_looks_for_kinds_of_them_no_steps(store: SqliteStore) -> None:
    await _end(store, 1)
    few = await _steps(store, "ended_kinds")
    await _end(store, 2000)
    assert await _steps(store, "ended_kinds") <= few * 1.1


async def _end(store: SqliteStore, number: int) -> None:
    await store.add([new_job() for _ in range(number)])
    await store.settle([settlement(job, DONE) for job in (await claim(store, number)).jobs])


async def _steps(store: SqliteStore, name: str) -> int:
    """The steps of SQLite's machine that a statement without arguments takes."""

    def count(db: Any) -> int:
        counted = 0

        def step() -> bool:
            nonlocal counted
            counted += 1
            return False

        db.set_progress_handler(step, 1)
        list(db.execute(SQL[name]))
        db.set_progress_handler(None)
        return counted

    return await store._database.bare(count)
