"""Several stores write to one file at the same time, and none of them hears of a lock."""

import asyncio
from pathlib import Path

from demora.core.verdict import Succeeded
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection.transactors import LIGHT
from tests.builders import claim, new_job, settlement

STORES, ROUNDS, BATCH = 4, 5, LIGHT + 1  # heavy enough to be written on a thread


async def test_stores_that_write_at_once_wait_for_each_other(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "jobs.db") for _ in range(STORES)]
    for store in stores:
        await store.open()
    done = await asyncio.gather(*(add_claim_and_settle(store, f"worker {n}") for n, store in enumerate(stores)))
    assert sum(done) + await left(stores[0]) == STORES * ROUNDS * BATCH
    for store in stores:
        await store.close()


async def add_claim_and_settle(store: SqliteStore, worker: str) -> int:
    done = 0
    for _ in range(ROUNDS):
        await store.add([new_job() for _ in range(BATCH)])
        claimed = await claim(store, BATCH, worker=worker)
        answers = await store.settle([settlement(job, Succeeded(b"1")) for job in claimed.jobs])
        assert None not in answers
        done += len(answers)
    return done


async def left(store: SqliteStore) -> int:
    [queue] = await store.queues()
    return queue.ready
