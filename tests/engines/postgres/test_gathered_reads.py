"""Reads of single jobs at the same time share statements, and no caller waits for another caller's fate."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from demora.core.job import Job
from demora.engines.postgres import PostgresStore, rows
from demora.engines.postgres.connection.connections import Session
from demora.engines.postgres.database import MOST_GATHERED, READERS, GatheredReads
from demora.errors import StoreError
from tests.builders import add_ids, add_one


class Counted:
    """Reads jobs, and notes how many each statement read. While the gate is closed, statements wait at it."""

    def __init__(self, store: PostgresStore) -> None:
        self.sizes: list[int] = []
        self.gate, self.full = asyncio.Event(), asyncio.Event()
        self.broken = False
        self.reads = GatheredReads(store._database, self._read)

    async def _read(self, session: Session, keys: Sequence[str]) -> Mapping[str, Job]:
        self.sizes.append(len(keys))
        if len(self.sizes) == READERS:
            self.full.set()
        await self.gate.wait()
        if self.broken:
            raise StoreError("the disk is on fire")
        return await rows.get_many(session, keys)

    async def asked(self, ids: Sequence[str]) -> list["asyncio.Task[Job | None]"]:
        """Ask for jobs, and return when as many statements as may be are under way."""
        tasks = [asyncio.ensure_future(self.reads.get(id)) for id in ids]
        await self.full.wait()
        return tasks


@pytest.fixture
def counted(store: PostgresStore) -> Counted:
    return Counted(store)


async def test_reads_that_wait_share_a_statement(store: PostgresStore, counted: Counted) -> None:
    ids = await add_ids(store, *({} for _ in range(READERS + MOST_GATHERED + 10)))
    tasks = await counted.asked(ids)
    assert counted.sizes == [1] * READERS
    counted.gate.set()
    found = await asyncio.gather(*tasks)
    assert [job and job.id for job in found] == ids
    assert sorted(counted.sizes) == sorted([*([1] * READERS), MOST_GATHERED, 10])


async def test_a_cancelled_caller_costs_the_others_nothing(store: PostgresStore, counted: Counted) -> None:
    ids = await add_ids(store, *({} for _ in range(10)))
    tasks = await counted.asked(ids)
    for gone in (0, 5):  # one that reads for itself, and one that waits
        tasks[gone].cancel()
    counted.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [n in (0, 5) for n in range(10)]
    assert [one.id for one in found if isinstance(one, Job)] == [id for n, id in enumerate(ids) if n not in (0, 5)]
    assert await counted.reads.get(ids[0]) is not None


async def test_all_who_share_a_read_learn_that_it_failed(store: PostgresStore, counted: Counted) -> None:
    id = (await add_one(store)).id
    tasks = await counted.asked([id] * 5)
    counted.broken = True
    counted.gate.set()
    assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [StoreError] * 5
    counted.broken = False
    assert await counted.reads.get(id) is not None


async def test_reads_share_a_statement_also_after_others_have_ended(store: PostgresStore, counted: Counted) -> None:
    ids = await add_ids(store, *({} for _ in range(READERS + 3)))
    for _ in range(2):
        tasks = await counted.asked(ids)
        counted.gate.set()
        assert [job and job.id for job in await asyncio.gather(*tasks)] == ids
        assert sorted(counted.sizes) == [*([1] * READERS), 3]
        counted.sizes.clear()
        counted.gate.clear()
        counted.full.clear()
