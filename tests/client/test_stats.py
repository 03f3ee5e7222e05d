"""`client.stats`: right counts, shared by callers, and never older than they say."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest

from demora import Demora
from demora.client import counts as module
from demora.client import shared
from demora.client.client import Client
from demora.client.counts import Counts, JobCounts, Stats, summarise
from demora.engines.sqlite import SqliteStore
from demora.store.jobs import ALL_QUEUES, Queue, QueueQuery
from tests.servers.nearby import serving

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Gate(SqliteStore):
    """A store whose counts wait for a permit, and are counted themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.counts, self.permits = 0, asyncio.Semaphore(0)

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        self.counts += 1
        await self.permits.acquire()
        return [Queue("default", ready=self.counts)]


@pytest.fixture(params=["direct", "over HTTP"])
async def clients(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Demora, Client]]:
    """An application, and a client of it: its own, or one of its service."""
    async with Demora("sqlite://") as app:
        if request.param == "direct":
            yield app, await app.open()
            return
        async with serving(app) as url, Demora(url) as other:
            yield app, await other.open()


async def test_every_state_is_counted_by_queue_and_in_all(clients: tuple[Demora, Client]) -> None:
    app, client = clients
    await app.enqueue("demo.echo", queue="mail")
    await app.enqueue("demo.echo", queue="mail", delay="1h")
    dead = await app.enqueue("demo.fail", queue="reports", max_retries=0)
    async with app.worker(queues=["reports"]):
        await app.wait(dead.id)
    counted = await client.stats()
    assert counted.total == JobCounts(ready=1, delayed=1, dead=1)
    assert counted.queues == {"mail": JobCounts(ready=1, delayed=1), "reports": JobCounts(dead=1)}


async def test_an_empty_database_has_no_jobs(clients: tuple[Demora, Client]) -> None:
    counted = await clients[1].stats()
    assert (counted.total, counted.queues) == (JobCounts(), {})


async def together(counter: Counts, store: Gate, *fresh: bool) -> Sequence[Stats]:
    asked = [asyncio.create_task(counter.stats(fresh=one)) for one in fresh]
    await asyncio.sleep(0)
    for _ in fresh:
        store.permits.release()
    return await asyncio.gather(*asked)


async def test_callers_share_one_count() -> None:
    store = Gate()
    counted = await together(Counts(store), store, False, False, False)
    assert store.counts == 1
    assert len({id(one) for one in counted}) == 1


async def test_a_count_is_made_anew_when_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REUSED_FOR", 0.0)
    monkeypatch.setattr(shared, "REUSED_TIMES", 0)
    store = Gate()
    counter = Counts(store)
    await together(counter, store, False)
    await together(counter, store, False)
    assert store.counts == 2


async def test_a_fresh_count_begins_after_it_was_asked_for_and_serves_all_who_waited() -> None:
    store = Gate()
    counter = Counts(store)
    [before] = await together(counter, store, False)
    first, second, third = await together(counter, store, True, True, False)
    assert before.total.ready < first.total.ready
    assert second.counted_at >= first.counted_at
    assert third.total.ready >= first.total.ready
    assert store.counts <= 3


async def test_a_caller_that_gives_up_ends_the_count_for_nobody_else() -> None:
    store = Gate()
    counter = Counts(store)
    asked = [asyncio.create_task(counter.stats()) for _ in range(2)]
    await asyncio.sleep(0)
    asked[0].cancel()
    store.permits.release()
    counted = await asked[1]
    assert (asked[0].cancelled(), counted.total.ready) == (True, 1)


async def test_a_read_that_fails_is_not_kept() -> None:
    reads = iter([ConnectionError("away"), "here"])

    async def read() -> str:
        found = next(reads)
        if isinstance(found, Exception):
            raise found
        return found

    value = shared.Shared(read)
    with pytest.raises(ConnectionError):
        await value.get()
    assert await value.get() == "here"


def test_only_the_queues_with_the_most_jobs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUEUES", 2)
    counted = summarise([Queue("a", ready=1), Queue("b", dead=3), Queue("c", delayed=2)], NOW)
    assert counted == Stats(JobCounts(1, 2, 0, 3), {"b": JobCounts(dead=3), "c": JobCounts(delayed=2)}, 1, NOW)


async def test_dead_letters_are_counted_by_what_they_have_in_common() -> None:
    async with Demora("sqlite://") as app:
        client = await app.open()
        jobs = [await app.enqueue("demo.fail", queue=queue, max_retries=0) for queue in ("mail", "mail", "reports")]
        async with app.worker():
            for job in jobs:
                await app.wait(job.id)
        found = await client.dead_letter_stats()
    assert (found.jobs, found.complete) == (3, True)
    assert [(one.name, one.jobs) for one in found.by_queue] == [("mail", 2), ("reports", 1)]
    assert [(one.name, one.jobs, one.sample_id) for one in found.by_type] == [("demo.fail", 3, jobs[2].id)]
    assert [(one.name, one.jobs) for one in found.by_error] == [("RuntimeError", 3)]
    assert [(one.name, one.jobs) for one in found.by_age] == [("within 1h", 3)]
    assert found.by_queue[0].first_at <= found.by_queue[0].last_at


async def test_a_count_of_dead_letters_that_reached_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DEAD_LETTERS", 1)
    async with Demora("sqlite://") as app:
        job = await app.enqueue("demo.fail", max_retries=0)
        async with app.worker():
            await app.wait(job.id)
        assert not (await (await app.open()).dead_letter_stats()).complete
