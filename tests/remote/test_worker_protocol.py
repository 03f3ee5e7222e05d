"""The worker protocol over HTTP: the leases, fencing, lapses, pauses, paces and cancels that our own workers have."""

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from demora import Demora, Status
from demora.client.workers import remote_workers
from demora.client.workers.remote_workers import RemoteWorkers
from demora.core.access import KeyLimits, Scope
from demora.errors import NotAllowedForKey
from tests.api.asking import problem
from tests.api.keys import key_for
from tests.clock import TestClock
from tests.facts import eventually
from tests.remote.conftest import WORKERS, Ann, registered

LEASE = 30


async def test_a_worker_claims_runs_and_settles(app: Demora, http: httpx.AsyncClient) -> None:
    ann = await registered(http, queues=["mail", "post"], slots=3)
    added = await app.enqueue("a", {"n": 1}, queue="mail", tags=["x"], max_retries=5, timeout="90s", name="the one")
    [worker] = await (await app.open()).workers()
    assert (worker.id, worker.host, worker.slots, worker.queues, worker.types) == (
        ann.id,
        "ann",
        3,
        ("mail", "post"),
        ("a",),
    )
    job = await ann.claim_one()
    lease = job.pop("leaseMs")
    assert LEASE * 1000 <= lease < LEASE * 1000 + 5000
    assert job == {
        "id": added.id,
        "token": 1,
        "type": "a",
        "name": "the one",
        "queue": "mail",
        "payload": {"n": 1},
        "attempt": 1,
        "maxRetries": 5,
        "timeout": 90_000,
        "scheduledAt": job["scheduledAt"],
        "tags": ["x"],
    }
    assert await ann.renew(job, progress=0.5, message="half", log=["one", "two"]) == ([], [])
    running = await app.get(added.id)
    assert (running.status, running.worker_id, running.progress) == (Status.PROCESSING, ann.id, 0.5)
    assert await ann.settle(job, result={"sum": 3}) == "COMPLETED"
    ended = await app.get(added.id)
    assert (ended.result, ended.progress_message, [line.line for line in ended.log]) == ({"sum": 3}, "half", ["one", "two"])
    assert await ann.leave() == 204
    assert await (await app.open()).workers() == []


async def test_a_worker_learns_which_trace_a_job_belongs_to(http: httpx.AsyncClient, ann: Ann) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await http.post("/api/v1/jobs", json={"type": "a"}, headers={"traceparent": trace})
    assert (await ann.claim_one())["traceparent"].split("-")[1] == trace.split("-")[1]


async def test_only_jobs_of_its_types_and_queues_are_claimed(app: Demora, http: httpx.AsyncClient) -> None:
    ann = await registered(http, types=["a", "b"], queues=["q"])
    await app.enqueue_many([("c", None, {"queue": "q"}), ("a", None, {"queue": "other"})])
    wanted = [job.id for job in await app.enqueue_many([("b", None, {"queue": "q"}), ("a", None, {"queue": "q"})])]
    assert [job["id"] for job in await ann.claim()] == wanted
    assert await ann.claim() == []


async def test_each_outcome_is_judged_as_that_of_our_own_workers(app: Demora, ann: Ann, clock: TestClock) -> None:
    error = {"type": "ValueError", "message": "no", "traceback": "line 1"}
    expected: list[tuple[str, dict[str, Any], Status, int]] = [
        ("failed", {"error": error}, Status.RETRYING, 1),
        ("failed", {"error": error | {"permanent": True}}, Status.FAILED, 1),
        ("retry", {"after": 5000}, Status.RETRYING, 1),
        ("snooze", {"after": 5000}, Status.QUEUED, 0),
        ("cancelled", {}, Status.CANCELLED, 1),
        ("cancelled", {"error": error}, Status.CANCELLED, 1),
        ("cancelled", {"reason": "the order is gone"}, Status.CANCELLED, 1),
        ("cancelled", {"reason": "both", "error": error}, Status.CANCELLED, 1),
        ("handedBack", {}, Status.QUEUED, 0),
    ]
    for outcome, more, status, attempts in expected:
        added = await app.enqueue("a", priority="CRITICAL")
        assert await ann.settle(await ann.claim_one(), outcome, **more) == status.name, outcome
        job = await app.get(added.id)
        assert (job.status, len(job.attempts)) == (status, attempts), outcome
        if "reason" in more:
            assert job.error == more["reason"]
        elif "error" in more:
            kept = None if outcome == "cancelled" else "line 1"
            assert (job.error, job.attempts[0].traceback) == ("ValueError: no", kept)
        if status.waiting:
            await app.cancel(added.id)


async def test_a_retry_waits_as_long_as_the_worker_or_the_job_asks(app: Demora, ann: Ann, clock: TestClock) -> None:
    await app.enqueue("a", retry_delay="8s")
    await ann.settle(await ann.claim_one(), "retry", after=3000)
    clock.turn(2.999)
    assert await ann.claim() == []
    clock.turn(ms=1)
    job = await ann.claim_one()
    assert (job["attempt"], job["token"]) == (2, 2)
    await ann.settle(job, "failed")
    clock.turn(15.999)
    assert await ann.claim() == []
    clock.turn(ms=1)
    assert (await ann.claim_one())["attempt"] == 3


async def test_a_lease_that_is_not_renewed_lapses_and_its_worker_can_write_nothing(
    app: Demora, http: httpx.AsyncClient, ann: Ann, clock: TestClock
) -> None:
    added = await app.enqueue("a", retry_delay="0s")
    job, bob = await ann.claim_one(), await registered(http, name="bob")
    clock.turn(LEASE - 1)
    assert await ann.renew(job) == ([], [])
    clock.turn(LEASE, ms=-1)
    assert await bob.claim() == []
    clock.turn(ms=1)
    [again] = await eventually(bob.claim)
    assert (again["token"], again["attempt"]) == (2, 2)
    assert await ann.renew(job, progress=0.9, log=["late"]) == ([job["id"]], [])
    assert await ann.settle(job, result="late") is None
    assert await bob.settle(again, result="in time") == "COMPLETED"
    ended = await app.get(added.id)
    assert (ended.result, ended.progress, ended.log) == ("in time", None, ())
    assert (ended.attempts[0].error or "").startswith("WorkerLost: ")


async def test_a_worker_can_neither_renew_nor_settle_a_job_of_another(
    app: Demora, http: httpx.AsyncClient, ann: Ann
) -> None:
    await app.enqueue("a")
    job, bob = await ann.claim_one(), await registered(http, name="bob")
    assert await bob.renew(job) == ([job["id"]], [])
    assert await bob.settle(job) is None
    assert (await app.get(job["id"])).status is Status.PROCESSING
    assert await ann.renew(job | {"token": 2}) == ([job["id"]], [])
    assert await ann.settle(job | {"token": 2}) is None
    assert await ann.settle(job) == "COMPLETED"


async def test_a_repeated_settle_answers_what_it_recorded(app: Demora, ann: Ann, clock: TestClock) -> None:
    for outcome, more, status in (
        ("completed", {"result": 1}, "COMPLETED"),
        ("failed", {}, "RETRYING"),
        ("failed", {"error": {"type": "E", "permanent": True}}, "FAILED"),
        ("handedBack", {}, "QUEUED"),
        ("cancelled", {}, "CANCELLED"),
    ):
        await app.enqueue("a", priority="CRITICAL")
        job = await ann.claim_one()
        assert await ann.settle(job, outcome, **more) == status
        assert await ann.settle(job, outcome, **more) == status
        assert await ann.settle(job, "completed", result="other") == status
        if status in ("RETRYING", "QUEUED"):
            await app.cancel(job["id"])


async def test_a_settle_after_the_job_was_claimed_again_answers_its_own_record(
    app: Demora, ann: Ann, clock: TestClock
) -> None:
    await app.enqueue("a", retry_delay="0s")
    first = await ann.claim_one()
    await ann.settle(first, "failed")
    second = await ann.claim_one()
    assert await ann.settle(first, "failed") == "RETRYING"
    assert await ann.settle(second) == "COMPLETED"
    assert await ann.settle(first, "failed") == "RETRYING"


PERMANENT = {"error": {"type": "E", "message": "no", "permanent": True}}


async def test_a_repeated_settle_answers_its_record_after_the_job_was_retried_by_hand(
    app: Demora, http: httpx.AsyncClient, ann: Ann
) -> None:
    bob = await registered(http, name="bob")
    await app.enqueue("a", retry_delay="0s", max_retries=1)
    first = await ann.claim_one()
    assert await ann.settle(first, "failed") == "RETRYING"
    second = await ann.claim_one()
    assert await ann.settle(second, "failed") == "FAILED"
    await app.retry(first["id"])
    for settled, status in ((first, "RETRYING"), (second, "FAILED")):
        assert await ann.settle(settled, "failed") == status
    third = await bob.claim_one()
    for settled, status in ((first, "RETRYING"), (second, "FAILED")):
        assert await ann.settle(settled, "failed") == status
    assert await bob.settle(third, "failed", **PERMANENT) == "FAILED"
    assert await bob.settle(third, "failed", **PERMANENT) == "FAILED"
    await app.retry(first["id"])
    assert await ann.settle(second, "failed") == "RETRYING"  # retried twice since: the record does not say when it ended
    assert await bob.settle(third, "failed", **PERMANENT) == "FAILED"


@pytest.mark.parametrize(
    ("outcome", "more", "status"),
    [("failed", PERMANENT, "FAILED"), ("cancelled", {}, "CANCELLED"), ("failed", {}, "RETRYING")],
    ids=["FAILED", "CANCELLED", "RETRYING"],
)
async def test_a_run_before_a_retry_by_hand_keeps_its_status(
    app: Demora, ann: Ann, outcome: str, more: dict[str, Any], status: str
) -> None:
    await app.enqueue("a", retry_delay="1h")
    job = await ann.claim_one()
    assert await ann.settle(job, outcome, **more) == status
    if status == "RETRYING":
        await app.cancel(job["id"])
    await app.retry(job["id"])
    assert await ann.settle(job, outcome, **more) == status


@pytest.mark.parametrize(
    ("outcome", "more", "status"),
    [("failed", {}, "RETRYING"), ("snooze", {"after": 600_000}, "QUEUED"), ("handedBack", {}, "QUEUED")],
    ids=["failed", "snooze", "handedBack"],
)
async def test_a_repeated_settle_answers_its_record_after_a_caller_cancelled_the_job(
    app: Demora, ann: Ann, outcome: str, more: dict[str, Any], status: str
) -> None:
    await app.enqueue("a", retry_delay="1h")
    job = await ann.claim_one()
    assert await ann.settle(job, outcome, **more) == status
    await app.cancel(job["id"])
    assert await ann.settle(job, outcome, **more) == status


async def test_a_hand_back_of_a_job_that_was_cancelled_while_it_ran_answers_so_again(app: Demora, ann: Ann) -> None:
    await app.enqueue("a")
    job = await ann.claim_one()
    await app.cancel(job["id"])
    for _ in range(2):
        assert await ann.settle(job, "handedBack") == "CANCELLED"


async def test_an_error_may_be_named_like_that_of_a_lapsed_lease(app: Demora, ann: Ann) -> None:
    await app.enqueue("a")
    job = await ann.claim_one()
    error = {"error": {"type": "WorkerLost", "message": "mine", "permanent": True}}
    for _ in range(2):
        assert await ann.settle(job, "failed", **error) == "FAILED"


async def test_the_same_claim_id_answers_the_same_jobs_and_burns_no_attempt(
    app: Demora, http: httpx.AsyncClient, ann: Ann, clock: TestClock
) -> None:
    await app.enqueue_many([("a", None)] * 3)
    first = await ann.claim(2, claimId="c1")
    clock.turn(LEASE - 1)
    again = await ann.claim(2, claimId="c1")
    assert [(job["id"], job["token"]) for job in again] == [(job["id"], job["token"]) for job in first]
    clock.turn(LEASE - 1)  # the second answer extended the leases
    assert await ann.settle(first[0]) == "COMPLETED"
    assert [job["id"] for job in await ann.claim(2, claimId="c1")] == [first[1]["id"]]
    assert len(await ann.claim(2, claimId="c2")) == 1
    bob = await registered(http, name="bob")
    assert await bob.claim(2, claimId="c1") == []
    assert (await app.get(first[1]["id"])).attempt == 1


async def test_another_process_of_the_service_answers_a_claim_and_a_settle_again(app: Demora, ann: Ann) -> None:
    await app.enqueue("a")
    job = await ann.claim_one(claimId="c1")
    (await app.open()).remote_workers._known.clear()  # as after a restart
    assert (await ann.claim_one(claimId="c1"))["token"] == job["token"]
    assert await ann.settle(job) == "COMPLETED"
    (await app.open()).remote_workers._known.clear()
    assert await ann.settle(job) == "COMPLETED"


async def test_a_claim_waits_for_a_job_and_answers_at_once(app: Demora, ann: Ann, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = _asleep((await app.open()).remote_workers, monkeypatch)
    waiting = asyncio.ensure_future(ann.claim(wait=30_000))
    await asleep.wait()
    added = await app.enqueue("a")
    async with asyncio.timeout(10):
        [job] = await waiting
    assert job["id"] == added.id
    assert await ann.claim(wait=1) == []


async def test_the_lease_of_a_job_counts_from_the_request_that_waited(
    app: Demora, ann: Ann, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, now = (await app.open()).remote_workers, [100.0]
    monkeypatch.setattr(workers, "_monotonic", lambda: now[0])
    asleep = _asleep(workers, monkeypatch)
    waiting = asyncio.ensure_future(ann.claim(wait=30_000))
    await asleep.wait()
    now[0] += 20.0
    await app.enqueue("a")
    [job] = await waiting
    assert job["leaseMs"] == (LEASE + 20) * 1000


async def test_a_paused_queue_and_a_pace_hold_jobs_from_remote_workers(app: Demora, ann: Ann, clock: TestClock) -> None:
    client = await app.open()
    await client.pause("default")
    await app.enqueue("a")
    assert await ann.claim() == []
    await client.resume("default")
    assert len(await ann.claim()) == 1
    await client.set_pace("slow", gap="60s", burst=1)
    await app.enqueue_many([("a", None, {"queue": "slow", "delay": "1s"})] * 2)
    clock.turn(1)
    assert len(await eventually(ann.claim)) == 1
    assert await ann.claim() == []
    clock.turn(60)
    assert len(await eventually(ann.claim)) == 1


async def test_a_cancel_reaches_the_worker_with_its_next_renewal(app: Demora, ann: Ann) -> None:
    cancelled, completed = [(await app.enqueue("a")).id for _ in range(2)]
    jobs = await ann.claim()
    for id in (cancelled, completed):
        assert await app.cancel(id) is Status.PROCESSING
    assert await ann.renew(*jobs) == ([], sorted([cancelled, completed]))
    assert await ann.settle(jobs[0], "failed", error={"type": "Stopped"}) == "CANCELLED"
    assert await ann.settle(jobs[1], result=1) == "COMPLETED"


async def test_a_job_is_not_renewed_beyond_its_timeout_and_the_grace(app: Demora, ann: Ann, clock: TestClock) -> None:
    await app.enqueue("a", timeout="40s")
    job = await ann.claim_one()
    for passed, lost in ((20, []), (20, []), (5, []), (0.001, [job["id"]])):
        clock.turn(passed)
        assert await ann.renew(job) == (lost, [])


async def test_a_worker_that_leaves_hands_back_what_it_holds(app: Demora, http: httpx.AsyncClient, ann: Ann) -> None:
    ids = [(await app.enqueue("a")).id for _ in range(2)]
    await ann.claim()
    assert await ann.leave() == 204
    assert [(await app.get(id)).attempt for id in ids] == [0, 0]
    problem(await http.post(f"{WORKERS}/{ann.id}/claim", json={}), 404)
    bob = await registered(http, name="bob")
    assert [job["attempt"] for job in await bob.claim()] == [1, 1]


async def test_a_claim_that_waits_ends_when_its_worker_leaves(
    app: Demora, http: httpx.AsyncClient, ann: Ann, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = _asleep((await app.open()).remote_workers, monkeypatch)
    waiting = asyncio.ensure_future(ann.claim(wait=30_000))
    await asleep.wait()
    assert await ann.leave() == 204
    async with asyncio.timeout(10):
        assert await waiting == []
    job = await app.enqueue("a")
    assert (await app.get(job.id)).status is Status.QUEUED
    assert await (await app.open()).workers() == []
    problem(await http.post(f"{WORKERS}/{ann.id}/claim", json={}), 404)


async def test_a_claim_that_leases_a_job_while_its_worker_leaves_hands_it_back(
    app: Demora, ann: Ann, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, client = await app.enqueue("a"), await app.open()
    claim, leaving = client.store.claim, list[int]()

    async def slow(*args: Any, **options: Any) -> Any:
        """Claim after the removal has looked for jobs of the worker."""
        leaving.append(await ann.leave())
        return await claim(*args, **options)

    monkeypatch.setattr(client.store, "claim", slow)
    assert await ann.claim() == []
    assert leaving == [204]
    back = await app.get(job.id)
    assert (back.status, back.attempt) == (Status.QUEUED, 0)
    assert await client.workers() == []


async def test_what_does_not_fit_into_an_answer_is_handed_back(
    app: Demora, ann: Ann, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_workers, "MOST_ANSWER", 2500)
    monkeypatch.setattr(remote_workers, "LARGEST", 1)
    ids = [job.id for job in await app.enqueue_many([("a", {"text": "x" * 1000})] * 3)]
    assert [job["id"] for job in await ann.claim()] == ids[:2]
    [last] = await ann.claim()
    assert (last["id"], last["attempt"]) == (ids[2], 1)


async def test_any_call_is_a_sign_of_life(app: Demora, ann: Ann, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    client, now = await app.open(), [0.0]
    monkeypatch.setattr(client.remote_workers, "_monotonic", lambda: now[0])
    client.remote_workers._beats.clear()
    for _ in range(3):
        clock.turn(20)
        now[0] += 20
        await ann.renew()
        [alive] = await client.workers()
        assert alive.heartbeat_ago.total_seconds() == 0
    clock.turn(31)
    assert await client.workers() == []


async def test_a_worker_id_works_only_with_the_key_that_registered_it(app: Demora, http: httpx.AsyncClient) -> None:
    own, other = await key_for(app, Scope.WORK), await key_for(app, Scope.WORK)
    ann = await registered(http, key=own)
    await app.enqueue("a")
    job = await ann.claim_one()
    thief = Ann(http, ann.id, {"authorization": f"Bearer {other}"})
    for verb, body in (
        ("claim", {}),
        ("renew", {"jobs": []}),
        ("settle", {"jobs": [{"id": "x", "token": 1, "outcome": "completed"}]}),
    ):
        answer = await http.post(f"{WORKERS}/{ann.id}/{verb}", json=body, headers=thief.headers)
        assert problem(answer, 404)["title"] == "No such worker"
    assert await thief.leave() == 404
    assert await ann.settle(job) == "COMPLETED"


async def test_a_key_bound_to_queues_and_types_admits_no_worker_for_others(app: Demora, http: httpx.AsyncClient) -> None:
    limits = KeyLimits(queues=("mail.*",), types=("a", "b"))
    key = (await (await app.open()).keys.create("w", [Scope.WORK], limits=limits)).text
    bearer = {"authorization": f"Bearer {key}"}
    for field, body in (
        ("queues", {}),
        ("queues", {"queues": ["mail.1", "post"]}),
        ("types", {"queues": ["mail.1"], "types": ["a", "c"]}),
    ):
        asked = {"name": "w", "types": ["a"], "slots": 1, **body}
        problem(await http.post(WORKERS, json=asked, headers=bearer), 403, field)
    ann = await registered(http, key=key, queues=["mail.1"], types=["a", "b"])
    assert await ann.claim() == []


async def test_a_key_that_is_bound_later_lets_its_worker_settle_and_claim_no_more(app: Demora) -> None:
    client = await app.open()
    key = (await client.keys.create("w", [Scope.WORK])).key
    worker = await client.remote_workers.register("ann", ["a"], slots=1, key=key)
    bound = msgspec.structs.replace(key, limits=KeyLimits(types=("b",)))
    assert await client.remote_workers.worker(worker.id, bound) == worker
    with pytest.raises(NotAllowedForKey):
        client.remote_workers.check_allowed(worker, bound)


async def test_a_request_that_is_wrong_is_refused_with_the_field(app: Demora, http: httpx.AsyncClient, ann: Ann) -> None:
    await app.enqueue("a")
    job = await ann.claim_one()
    lease = {"id": job["id"], "token": job["token"]}
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("claim", {"limit": 101}, "limit"),
        ("claim", {"wait": 30_001}, "wait"),
        ("claim", {"claimId": "x" * 256}, "claimId"),
        ("claim", {"more": 1}, "more"),
        ("renew", {"jobs": [lease] * 1001}, "jobs"),
        ("renew", {"jobs": [lease | {"progress": 2}]}, "jobs[0].progress"),
        ("renew", {"jobs": [lease | {"log": ["x"] * 201}]}, "jobs[0].log"),
        ("renew", {"jobs": [lease | {"message": "\0"}]}, "jobs[0].message"),
        ("settle", {"jobs": []}, "jobs"),
        ("settle", {"jobs": [lease | {"outcome": "done"}]}, "jobs[0].outcome"),
        ("settle", {"jobs": [lease | {"outcome": "snooze"}]}, "jobs[0].after"),
        ("settle", {"jobs": [lease | {"outcome": "retry", "after": -1}]}, "jobs[0].after"),
        ("settle", {"jobs": [lease | {"outcome": "completed", "result": "\0"}]}, "jobs[0].result"),
        ("settle", {"jobs": [lease | {"outcome": "completed", "token": 0}]}, "jobs[0].token"),
        ("settle", {"jobs": [lease | {"outcome": "completed", "token": 2**63}]}, "jobs[0].token"),
    ]
    for verb, body, field in refused:
        problem(await http.post(f"{WORKERS}/{ann.id}/{verb}", json=body), 422, field)
    for field, body in (
        ("types", {"types": []}),
        ("types", {"types": ["demora.webhook"]}),
        ("types", {"types": ["demora.action"]}),
        ("types", {"types": ["no type"]}),
        ("queues", {"queues": ["no queue"]}),
        ("slots", {"slots": 0}),
        ("name", {"name": ""}),
    ):
        problem(await http.post(WORKERS, json={"name": "w", "types": ["a"], "slots": 1, **body}), 422, field)
    assert (await app.get(job["id"])).status is Status.PROCESSING


def _asleep(workers: RemoteWorkers, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when a claim has found nothing and waits."""
    asleep, sleep = asyncio.Event(), workers._sleep

    async def noted(*args: Any) -> None:
        asleep.set()
        await sleep(*args)

    monkeypatch.setattr(workers, "_sleep", noted)
    return asleep
