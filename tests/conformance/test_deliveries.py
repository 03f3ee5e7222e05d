"""What tells of a job's end is recorded with the end, in every way that a job can end."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from demora.core.job import Job, Unique
from demora.core.outbound.webhook import QUEUE, TYPE, Secret
from demora.core.retention import Keep, Retention
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Raised, Snoozed, Succeeded
from demora.store.jobs import QueueChange, Topic
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    NO_IDS,
    add_ids,
    add_one,
    claim,
    claim_ids,
    claim_one,
    job_of,
    new_job,
    run_one,
    seconds,
    settle,
    settle_lapsed,
    settlement,
)
from tests.clock import TestClock

URL = "https://example.com/hook"
HOOKED: dict[str, Any] = {"webhook_url": URL}
ALL: dict[str, Any] = {"webhook_url": URL, "webhook_on_cancel": True}
OWN = {"queues": ["default"]}


async def told(store: Store, id: str) -> list[Job]:
    return await store.webhooks.deliveries(id)


async def message(store: Store, id: str) -> Any:
    """What the one delivery about a job says."""
    [delivery] = await told(store, id)
    assert (delivery.type, delivery.queue, delivery.cause, delivery.webhook_url) == (TYPE, QUEUE, id, None)
    assert delivery.payload["url"] == URL
    return delivery.payload["message"]


@pytest.mark.parametrize(
    ("outcome", "status", "told_as"),
    [
        (Succeeded(b'{"n":[1,2.5,null]}'), "completed", {"result": {"n": [1, 2.5, None]}}),
        (BROKEN, "failed", {"error": "ValueError: no"}),
        (Cancelled("no need"), "cancelled", {"error": "no need"}),
    ],
)
async def test_an_end_by_a_run_is_told(store: Store, outcome: Any, status: str, told_as: dict[str, Any]) -> None:
    await add_one(store, **ALL)
    id = await run_one(store, outcome)
    job = await job_of(store, id)
    assert job.completed_at is not None
    at = job.completed_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    facts = {"jobId": id, "jobType": job.type, "status": status, "completedAt": at, "attempts": 1}
    assert await message(store, id) == facts | told_as


async def test_a_cancel_is_told_only_if_that_is_asked_for(store: Store) -> None:
    quiet, loud = await add_ids(store, HOOKED, ALL)
    await store.cancel([quiet, loud])
    assert await told(store, quiet) == []
    assert (await message(store, loud))["status"] == "cancelled"


async def test_nothing_is_told_of_a_job_without_a_webhook(store: Store) -> None:
    added = await add_one(store)
    await run_one(store)
    assert await told(store, added.id) == []
    assert QUEUE not in {queue.name for queue in await store.queues()}


@pytest.mark.parametrize("outcome", [Raised("again"), Snoozed(timedelta(0)), HandedBack()])
async def test_nothing_is_told_of_a_run_that_did_not_end_its_job(store: Store, outcome: Any) -> None:
    added = await add_one(store, **ALL)
    job = await claim_one(store)
    assert await settle(store, job, outcome) is not None
    assert await told(store, added.id) == []


async def test_a_settlement_that_is_refused_tells_nothing(store: Store, clock: TestClock) -> None:
    added = await add_one(store, **ALL)
    job = await claim_one(store, lease=seconds(5))
    clock.turn(6)
    assert await settle(store, job, DONE) is None
    assert await told(store, added.id) == []


async def test_an_end_by_a_wish_is_told_with_what_became_of_the_job(store: Store) -> None:
    ids = await add_ids(store, ALL, ALL)
    jobs = (await claim(store, **OWN)).jobs
    await store.cancel(ids)
    await store.settle([settlement(jobs[0], DONE), settlement(jobs[1], Raised("again"))])
    assert [(await message(store, id))["status"] for id in ids] == ["completed", "cancelled"]


async def test_a_lapse_that_spends_the_last_attempt_is_told(store: Store, clock: TestClock) -> None:
    added = await add_one(store, max_retries=0, **HOOKED)
    await claim_one(store, lease=seconds(5))
    clock.turn(6)
    assert await settle_lapsed(store) is Status.FAILED
    assert "WorkerLost" in (await message(store, added.id))["error"]


@pytest.mark.parametrize("by", ["claim", "housekeep"])
async def test_an_expiry_is_told_whoever_notices_it(store: Store, clock: TestClock, by: str) -> None:
    ids = await add_ids(
        store, ALL | {"expires_in": seconds(5)}, {"expires_in": seconds(5)}, HOOKED | {"expires_in": seconds(5)}
    )
    last = (await add_one(store)).id
    clock.turn(6)
    if by == "housekeep":
        assert (await store.housekeep(Retention(), limit=100)).expired == 3
    seen: list[str] = []
    for _ in range(3):
        seen += await claim_ids(store, 10, **OWN)
    assert seen == [last]
    assert [(await job_of(store, id)).status for id in ids] == [Status.CANCELLED] * 3
    assert (await message(store, ids[0]))["error"].startswith("Expired")
    assert [await told(store, id) for id in ids[1:]] == [[], []]


async def test_many_ends_at_once_are_told_each(store: Store) -> None:
    ids = await add_ids(store, *[HOOKED if n % 2 else {} for n in range(20)])
    jobs = (await claim(store, **OWN)).jobs
    outcomes = [DONE if n % 3 else BROKEN for n in range(20)]
    statuses = await store.settle([settlement(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])
    assert statuses == [Status.COMPLETED if n % 3 else Status.FAILED for n in range(20)]
    assert [len(await told(store, id)) for id in ids] == [n % 2 for n in range(20)]


async def test_settlements_of_callers_at_the_same_time_are_told_each(store: Store) -> None:
    ids = await add_ids(store, *[HOOKED] * 6)
    jobs = (await claim(store, **OWN)).jobs
    await asyncio.gather(*(store.settle([settlement(job, DONE)]) for job in jobs))
    assert [len(await told(store, id)) for id in ids] == [1] * 6


async def test_a_settlement_that_is_repeated_tells_once(store: Store) -> None:
    added = await add_one(store, **HOOKED)
    job = await claim_one(store)
    assert await settle(store, job, DONE) is Status.COMPLETED
    assert await settle(store, job, DONE) is None
    assert len(await told(store, added.id)) == 1


async def test_each_generation_of_a_job_is_told_of(store: Store, clock: TestClock) -> None:
    added = await add_one(store, **HOOKED)
    await run_one(store, BROKEN)
    clock.turn(1)
    await store.retry([added.id])
    [job] = (await claim(store, **OWN)).jobs
    await settle(store, job, DONE)
    assert [one.payload["message"]["status"] for one in await told(store, added.id)] == ["failed", "completed"]


async def test_nobody_is_told_of_a_delivery(store: Store) -> None:
    await store.set_queue(QUEUE, QueueChange(webhook_url=URL))
    added = await add_one(store, **HOOKED)
    await run_one(store)
    [delivery] = await told(store, added.id)
    assert await claim_ids(store, queues=[QUEUE]) == [delivery.id]
    assert await told(store, delivery.id) == []


async def test_a_delivery_wakes_those_who_wait_for_work(store: Store) -> None:
    added = await add_one(store, **HOOKED)
    job = await claim_one(store)
    with store.subscribe(Topic.READY) as subscription:
        subscription.clear()
        await settle(store, job, DONE)
        await asyncio.wait_for(subscription.wait(None), 30)
    assert [one.status for one in await told(store, added.id)] == [Status.QUEUED]


async def test_a_delivery_outlives_its_cause_and_does_not_keep_it(store: Store, clock: TestClock) -> None:
    removed, purged, aged = [(await add_one(store, **HOOKED)).id for _ in range(3)]
    for _ in range(3):
        [job] = (await claim(store, 1, **OWN)).jobs
        await settle(store, job, DONE)
    await store.remove([removed])
    clock.turn(10)
    await store.purge(Status.COMPLETED, older_than=seconds(5), limit=1, queue="default")
    await store.housekeep(Retention(completed=Keep(seconds(5))), limit=10)
    for id in (removed, purged, aged):
        assert await store.get(id) is None
        assert (await message(store, id))["jobId"] == id


async def test_a_job_without_a_webhook_has_that_of_its_queue_when_it_ends(store: Store) -> None:
    early = await add_one(store, queue="mail")
    assert (await store.set_queue("mail", QueueChange(webhook_url=URL))).webhook_url == URL
    own, late, other = await add_ids(
        store, {"queue": "mail", "webhook_url": "https://other.example/"}, {"queue": "mail"}, {"queue": "default"}
    )
    assert {queue.name: queue.webhook_url for queue in await store.queues()} == {"default": None, "mail": URL}
    await store.set_queue("mail", QueueChange(paused=False))
    for job in (await claim(store, queues=["mail", "default"])).jobs:
        await settle(store, job, DONE)
    urls = [[one.payload["url"] for one in await told(store, id)] for id in (early.id, late, own, other)]
    assert urls == [[URL], [URL], ["https://other.example/"], []]


async def test_a_queue_that_has_no_webhook_any_more_tells_of_nothing(store: Store) -> None:
    await store.set_queue("mail", QueueChange(webhook_url=URL))
    id = (await add_one(store, queue="mail")).id
    assert (await store.set_queue("mail", QueueChange(webhook_url=""))).webhook_url is None
    await settle(store, await claim_one(store), DONE)
    assert await told(store, id) == []


@pytest.mark.parametrize("by", ["cancel", "claim", "housekeep", "lapse"])
async def test_whatever_ends_a_job_is_told_to_the_webhook_of_its_queue(store: Store, clock: TestClock, by: str) -> None:
    await store.set_queue("default", QueueChange(webhook_url=URL))
    id = (await add_one(store, webhook_on_cancel=True, max_retries=0, expires_in=seconds(5))).id
    if by == "cancel":
        await store.cancel([id])
    elif by == "lapse":
        await claim_one(store, lease=seconds(5))
    clock.turn(6)
    if by == "lapse":
        await settle_lapsed(store)
    elif by == "housekeep":
        await store.housekeep(Retention(), limit=100)
    elif by == "claim":
        assert not (await claim(store, **OWN)).jobs
    assert (await message(store, id))["status"] == ("failed" if by == "lapse" else "cancelled")


async def test_what_takes_the_place_of_a_unique_job_has_its_own_webhook(store: Store) -> None:
    asked = {"unique": Unique("u", replace=True)}
    added = await add_one(store, **asked)
    await store.add([new_job(**asked, **ALL)])
    job = await job_of(store, added.id)
    assert (job.webhook_url, job.webhook_on_cancel) == (URL, True)


async def test_ids_that_are_no_ids_have_no_deliveries(store: Store) -> None:
    assert [await told(store, id) for id in NO_IDS] == [[]] * len(NO_IDS)


async def test_secrets_are_kept_and_end_after_another_took_their_place(store: Store, clock: TestClock) -> None:
    first = await store.webhooks.add_secret("one", Secret(b"1" * 32))
    clock.turn(1)
    await store.webhooks.add_secret("two", Secret(b"2" * 32), others_end_in=seconds(60))
    seen = await store.webhooks.signing()
    assert [one.id for one in seen.secrets] == ["two", "one"]
    assert [one.secret.key for one in seen.secrets] == [b"2" * 32, b"1" * 32]
    assert seen.secrets[1].ends_at == seen.now + seconds(60)
    assert first.created_at == seen.secrets[1].created_at
    clock.turn(60)
    seen = await store.webhooks.signing()
    assert [one.in_force(seen.now) for one in seen.secrets] == [True, False]
    assert await store.webhooks.forget_secret("one")
    assert not await store.webhooks.forget_secret("one")
    assert [one.id for one in (await store.webhooks.signing()).secrets] == ["two"]


async def test_a_first_secret_is_made_once_and_anew_only_when_none_is_in_force(store: Store, clock: TestClock) -> None:
    made = await asyncio.gather(*(store.webhooks.ensure_secret(Secret(bytes([n]) * 32)) for n in range(8)))
    [first] = [one for one in made if one is not None]
    assert [one.secret for one in (await store.webhooks.signing()).secrets] == [first.secret]
    await store.webhooks.add_secret("two", Secret(b"2" * 32), others_end_in=seconds(60))
    clock.turn(61)
    assert await store.webhooks.ensure_secret(Secret(b"3" * 32)) is None
    await store.webhooks.forget_secret("two")
    again = await store.webhooks.ensure_secret(Secret(b"4" * 32))
    assert again is not None
    seen = await store.webhooks.signing()
    assert [(one.secret.key, one.in_force(seen.now)) for one in seen.secrets] == [(b"4" * 32, True)]


async def test_a_url_is_disabled_once_and_enabled_again(store: Store) -> None:
    assert (await store.webhooks.signing(URL)).disabled is None
    await store.webhooks.disable(URL, "it answered 410")
    await store.webhooks.disable(URL, "again")
    seen = await store.webhooks.signing(URL)
    assert seen.disabled is not None
    assert (seen.disabled.url, seen.disabled.reason, seen.disabled.disabled_at) == (URL, "it answered 410", seen.now)
    assert await store.webhooks.disabled() == [seen.disabled]
    assert (await store.webhooks.signing("https://other.example/")).disabled is None
    assert await store.webhooks.enable(URL)
    assert not await store.webhooks.enable(URL)
    assert await store.webhooks.disabled() == []


async def test_the_message_of_a_delivery_is_the_same_each_time_it_is_claimed(store: Store) -> None:
    await add_one(store, **HOOKED)
    await run_one(store, Succeeded(b'{"b":1,"a":12345678901234567.125,"text":"\\u00e4"}'))
    job = await claim_one(store)
    await settle(store, job, Snoozed(timedelta(0)))
    again = await claim_one(store)
    assert job.payload == again.payload
    assert json.loads(job.payload)["message"]["result"]["b"] == 1
