"""Verbs on many jobs: only what matches, each once, in small batches; and the settling of what dead workers left."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from demora.client.bulk import BATCH, BulkResult
from demora.client.client import Client
from demora.client.workers.recovery import Recovered
from demora.core.states import Status
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid
from demora.handlers.registry import Registry
from demora.store.jobs import Page, Query
from tests.builders import BROKEN, DONE, LEASE, add_ids, claim, claim_one, ended_one, job_of, new_job, settle, status_of
from tests.clock import TestClock


@pytest.fixture
async def store(clock: TestClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def client(store: SqliteStore) -> Client:
    return Client(store, Registry())


async def dead(store: SqliteStore, **changes: Any) -> str:
    return await ended_one(store, Status.FAILED, **changes)


FILTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "queue": ({"queue": "mail"}, {"queue": "mail"}),
    "type": ({"type": "a.b"}, {"type": "a.b"}),
    "tag": ({"tags": ("red",)}, {"tag": "red"}),
}


@pytest.mark.parametrize(("made", "asked"), FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("verb", ["retry_many", "delete_many"])
async def test_only_dead_letters_that_match_are_touched(
    store: SqliteStore, client: Client, verb: str, made: dict[str, Any], asked: dict[str, Any]
) -> None:
    hit, miss = await dead(store, **made), await dead(store)
    assert await getattr(client, verb)(**asked) == BulkResult(matched=1, done=1)
    assert await status_of(store, miss) is Status.FAILED
    touched = await store.get(hit)
    assert touched is None if verb == "delete_many" else touched is not None and touched.status is Status.QUEUED


async def test_dead_letters_are_retried_by_their_age(store: SqliteStore, client: Client, clock: TestClock) -> None:
    old = await dead(store)
    clock.turn(3600)
    new = await dead(store)
    assert await client.retry_many(older_than="1h") == BulkResult(matched=1, done=1)
    assert [await status_of(store, id) for id in (old, new)] == [Status.QUEUED, Status.FAILED]


async def test_only_waiting_jobs_that_match_are_cancelled(store: SqliteStore, client: Client) -> None:
    hit, other = await add_ids(store, {"queue": "mail"}, {})
    assert await client.cancel_many(queue="mail") == BulkResult(matched=1, done=1)
    assert [await status_of(store, id) for id in (hit, other)] == [Status.CANCELLED, Status.QUEUED]


async def test_a_status_may_be_given_alone(store: SqliteStore, client: Client) -> None:
    [id] = await add_ids(store, {})
    for status in ("QUEUED", Status.QUEUED, ["QUEUED"]):
        assert [job.id for job in (await client.find(status=status)).jobs] == [id]
    assert await client.cancel_many(status="QUEUED") == BulkResult(matched=1, done=1)


async def test_to_change_nothing_is_refused(store: SqliteStore, client: Client) -> None:
    [id] = await add_ids(store, {})
    with pytest.raises(Invalid, match="nothing to change"):
        await client.reschedule(id)


async def test_running_jobs_are_not_cancelled_by_a_filter(store: SqliteStore, client: Client) -> None:
    await add_ids(store, {})
    await claim_one(store)
    assert await client.cancel_many() == BulkResult()


@pytest.mark.parametrize("verb", ["retry_many", "delete_many", "cancel_many"])
async def test_a_dry_run_counts_and_writes_nothing(store: SqliteStore, client: Client, verb: str) -> None:
    before = [await job_of(store, await dead(store)), await job_of(store, (await add_ids(store, {}))[0])]
    assert await getattr(client, verb)(dry_run=True) == BulkResult(matched=1)
    assert [await job_of(store, job.id) for job in before] == before


@pytest.mark.parametrize(
    ("verb", "status"), [("retry_many", "COMPLETED"), ("delete_many", "QUEUED"), ("cancel_many", "FAILED")]
)
async def test_a_status_that_the_verb_does_not_take_is_refused(client: Client, verb: str, status: str) -> None:
    with pytest.raises(Invalid, match="status"):
        await getattr(client, verb)(status=[status])


async def test_other_ended_jobs_are_touched_only_if_asked_for(store: SqliteStore, client: Client) -> None:
    done, cancelled = await ended_one(store, Status.COMPLETED), await ended_one(store, Status.CANCELLED)
    assert await client.retry_many() == await client.delete_many() == BulkResult()
    assert await client.retry_many(status=["CANCELLED"]) == BulkResult(matched=1, done=1)
    assert await client.delete_many(status=["COMPLETED"]) == BulkResult(matched=1, done=1)
    assert (await status_of(store, cancelled), await store.get(done)) == (Status.QUEUED, None)


async def many_dead(store: SqliteStore, count: int) -> list[str]:
    ids = [added.id for added in await store.add([new_job(max_retries=0) for _ in range(count)])]
    for job in (await claim(store, count)).jobs:
        await settle(store, job, BROKEN)
    return ids


async def test_many_jobs_are_done_batch_by_batch_and_each_batch_is_told(store: SqliteStore, client: Client) -> None:
    ids = await many_dead(store, 2 * BATCH + 1)
    heard: list[BulkResult] = []
    assert await client.retry_many(on_progress=heard.append) == BulkResult(len(ids), len(ids))
    assert [tally.done for tally in heard] == [BATCH, 2 * BATCH, 2 * BATCH + 1]
    assert {await status_of(store, id) for id in ids} == {Status.QUEUED}


@pytest.mark.parametrize("limit", [1, BATCH, BATCH + 1])
async def test_a_limit_is_kept_and_says_that_there_are_more(store: SqliteStore, client: Client, limit: int) -> None:
    ids = await many_dead(store, BATCH + 2)
    assert await client.delete_many(limit=limit) == BulkResult(limit, limit, more=True)
    assert await client.delete_many(limit=len(ids)) == BulkResult(len(ids) - limit, len(ids) - limit)


async def test_a_limit_below_one_is_refused(client: Client) -> None:
    with pytest.raises(Invalid, match="limit"):
        await client.retry_many(limit=0)


class Slow(SqliteStore):
    """A store on which somebody else deletes what was found before the finder can act."""

    async def find(self, query: Query) -> Page:
        page = await super().find(query)
        await self.remove([job.id for job in page.jobs[:1]])
        return page


async def test_a_job_that_moved_on_meanwhile_is_skipped(clock: TestClock) -> None:
    store = Slow(clock=clock)
    await store.open()
    for _ in range(2):
        await dead(store)
    assert await Client(store, Registry()).retry_many() == BulkResult(matched=2, done=1, skipped=1)
    await store.close()


async def test_purge_deletes_all_that_ended_so_long_ago_in_batches(
    store: SqliteStore, client: Client, clock: TestClock
) -> None:
    await many_dead(store, BATCH + 1)
    mail = await dead(store, queue="mail")
    clock.turn(3600)
    young, done = await dead(store), await ended_one(store, Status.COMPLETED)
    assert await client.purge("FAILED", older_than="1h", dry_run=True) == BulkResult(matched=BATCH + 2)
    assert await client.purge("FAILED", older_than="1h", queue="mail") == BulkResult(1, 1)
    assert await store.get(mail) is None
    heard: list[BulkResult] = []
    assert await client.purge("FAILED", older_than="1h", on_progress=heard.append) == BulkResult(BATCH + 1, BATCH + 1)
    assert [tally.done for tally in heard] == [BATCH, BATCH + 1]
    assert [job.id for job in (await store.find(Query())).jobs] == [done, young]


async def test_jobs_that_have_not_ended_cannot_be_purged(client: Client) -> None:
    with pytest.raises(Invalid, match="status"):
        await client.purge("QUEUED", older_than="1h")


async def test_recover_settles_what_lapsed_as_a_claim_would(store: SqliteStore, client: Client, clock: TestClock) -> None:
    retrying, failed = await add_ids(store, {}, {"max_retries": 0})
    await claim(store, worker="bob")
    clock.turn(LEASE.total_seconds())
    assert sorted(await client.recover(), key=lambda one: one.id) == [
        Recovered(retrying, "bob", Status.RETRYING),
        Recovered(failed, "bob", Status.FAILED),
    ]
    assert (await job_of(store, failed)).error == "WorkerLost: worker bob stopped renewing its lease"
    assert await client.recover() == []


async def test_recover_runs_nothing_and_leaves_leases_that_hold(store: SqliteStore, client: Client) -> None:
    running, waiting = await add_ids(store, {}, {})
    await claim_one(store)
    assert await client.recover() == []
    assert [await status_of(store, id) for id in (running, waiting)] == [Status.PROCESSING, Status.QUEUED]


async def test_a_worker_that_was_given_up_loses_its_jobs_and_cannot_settle(store: SqliteStore, client: Client) -> None:
    mine, other = await add_ids(store, {}, {})
    await store.heartbeat(WorkerRecord("bob", "host", 1, 1))
    job = await claim_one(store, worker="bob")
    await claim_one(store, worker="ann")
    assert await client.give_up("bob") == [Recovered(mine, "bob", Status.RETRYING)]
    assert await settle(store, job, DONE) is None
    assert (await store.lease_status([job.lease])).lost == {job.lease}
    assert [await status_of(store, id) for id in (mine, other)] == [Status.RETRYING, Status.PROCESSING]
    assert await store.workers() == []


async def test_a_cancel_that_was_asked_for_is_kept_when_a_worker_is_given_up(store: SqliteStore, client: Client) -> None:
    [id] = await add_ids(store, {})
    await claim_one(store, worker="bob")
    await store.cancel([id])
    assert await client.give_up("bob") == [Recovered(id, "bob", Status.CANCELLED)]
