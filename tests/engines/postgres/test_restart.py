"""A server that is killed and comes back: the store goes on by itself, and nothing is lost or done twice."""

import asyncio
from collections.abc import Iterator

import pytest

from demora.core.filters import JobFilter
from demora.core.states import Status
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.errors import StoreError
from demora.store.jobs import Query, Topic
from tests.builders import DONE, claim, new_job, settlement
from tests.facts import eventually
from tests.servers import postgres
from tests.servers.postgres import Server

RESTARTS = 3


@pytest.fixture
def server(url: str) -> Iterator[Server]:
    with postgres.running() as server:
        yield server


async def restart(server: Server) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def produce(store: PostgresStore, stop: asyncio.Event) -> list[str]:
    """Add jobs one by one until told to stop; those that were refused are tried again under the same id."""
    ids = []
    while not stop.is_set():
        asked = new_job()
        await eventually(lambda asked=asked: answered(store, asked))
        ids.append(asked.id)
    return ids


async def answered(store: PostgresStore, asked) -> bool:
    try:
        return bool(await store.add([asked]))
    except StoreError:
        return False


@pytest.mark.slow
async def test_jobs_are_added_and_run_through_restarts_without_loss_or_double(server: Server) -> None:
    store = PostgresStore(server.url, PostgresOptions(connections=3))
    await store.open()
    stop = asyncio.Event()
    producing = asyncio.create_task(produce(store, stop))
    for _ in range(RESTARTS):
        await eventually(lambda: settled_some(store))
        await restart(server)
    stop.set()
    ids = await producing
    await eventually(lambda: all_done(store, ids), within=60)
    jobs = [job for id in ids if (job := await store.get(id)) is not None]
    assert len(jobs) == len(ids)
    assert {(job.status, job.token) for job in jobs} == {(Status.COMPLETED, 1)}
    await store.close()


async def settled_some(store: PostgresStore) -> bool:
    try:
        jobs = (await claim(store, 10)).jobs
        return Status.COMPLETED in await store.settle([settlement(job, DONE) for job in jobs])
    except StoreError:
        return False


async def all_done(store: PostgresStore, ids: list[str]) -> bool:
    await settled_some(store)
    left = await store.find(Query(JobFilter(frozenset({Status.QUEUED, Status.PROCESSING})), limit=1))
    return not left.jobs


@pytest.mark.slow
async def test_a_waiter_is_notified_again_after_a_restart(server: Server) -> None:
    store, other = (PostgresStore(server.url, PostgresOptions(connections=1)) for _ in range(2))
    await store.open()
    await other.open()
    with store.subscribe(Topic.READY) as place:
        await store.queues()
        await restart(server)
        await eventually(lambda: _hears(store))
        place.clear()
        await eventually(lambda: answered(other, new_job()))
        await asyncio.wait_for(place.wait(None), 4)
    await store.close()
    await other.close()


async def _hears(store: PostgresStore) -> bool:
    return store._notifier.reachable
