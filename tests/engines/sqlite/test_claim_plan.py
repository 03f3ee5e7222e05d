"""The claim's statements stay short: they seek in the waiting index and never walk it."""

from datetime import timedelta

import pytest

from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.statements import SQL
from tests.builders import claim, new_job

ARGUMENTS = {"claim_heads": (), "claim_scan": ("q", 0, 0, 0, 1), "lapsed": (0, 1), "next_lapse": ()}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_claim_reads_jobs_through_an_index_only(store: SqliteStore, name: str) -> None:
    plan = await store._writes.bare(lambda db: list(db.execute(f"explain query plan {SQL[name]}", ARGUMENTS[name])))
    steps = [detail for *_, detail in plan if "jobs" in detail or "next" in detail]
    assert steps
    assert all("INDEX jobs_" in step or "INTEGER PRIMARY KEY" in step for step in steps), steps
    assert not any("TEMP B-TREE" in detail for *_, detail in plan), plan


async def test_delayed_rows_cost_a_claim_no_steps(store: SqliteStore) -> None:
    async def steps() -> int:
        return await store._writes.bare(lambda db: count_steps(db))

    def count_steps(db) -> int:
        counted = 0

        def step() -> bool:
            nonlocal counted
            counted += 1
            return False

        db.set_progress_handler(step, 1)
        list(db.execute(SQL["claim_heads"]))
        db.set_progress_handler(None)
        return counted

    await store.add([new_job(delay=timedelta(hours=1))])
    few = await steps()
    await store.add([new_job(delay=timedelta(hours=1, seconds=n)) for n in range(5000)])
    assert await steps() <= few * 1.1
    assert (await claim(store)).jobs == []
