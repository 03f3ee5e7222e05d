"""What races: the verbs that touch a job, its key, its queue or its pace; and the situations in which they meet."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

from demora.core.job import IdempotencyKey, NewJob, Priority, Unique
from demora.core.pace import Pace
from demora.core.pace_request import PaceRequest, request_of
from demora.core.retention import Keep, Retention
from demora.core.states import Status
from demora.core.verdict import GaveUp, HandedBack, Lapsed, Outcome, Raised
from demora.store.jobs import LOCKED_RETRY, Change, Claimed, HousekeepingResult, LapsedJob, Lease, QueueChange, Report
from demora.store.line_feed import Drawn, Entry
from demora.store.paces import Released
from tests.builders import BROKEN, DONE, LEASE, claim_one, lapsed_one, ms, new_job, seconds, settle, settlement
from tests.clock import TestClock

QUEUE, OTHER_QUEUE = "q", "q2"
ROW = "01900000-0000-7000-8000-00000000000a"  # the job that all verbs are about
OWN = {"ann": "01900000-0000-7000-8000-00000000000b", "bob": "01900000-0000-7000-8000-00000000000c"}
BEHIND = ("01900000-0000-7000-8000-00000000000d", "01900000-0000-7000-8000-00000000000e")  # two more jobs
SHORT = 2000  # milliseconds that the key of an ended job was kept
KEY, UNIQUE = IdempotencyKey("k", b"request"), Unique("u")
PACE = Pace(gap=seconds(10), burst=2, stagger=seconds(1), rapid=None)
NOTHING_KEPT = Retention(*[Keep(age=timedelta(0))] * 3)
NONE_KEPT = Retention(*[Keep(count=0)] * 3)


class Scene(NamedTuple):
    """A job in a situation: the lease that a worker had of it last, and what a claim says of it once that has lapsed."""

    lease: Lease
    job: Any = None
    lapsed: LapsedJob | None = None


# The port


def _add(**changes: Any) -> "Doing":
    async def add(store: Any, scene: Scene, actor: str) -> Any:
        return await store.add([_job(**{"id": OWN[actor], **changes})])

    return add


def _job(**changes: Any) -> NewJob:
    return new_job(**{"id": ROW, "queue": QUEUE, "max_retries": 1, "retry_delay": seconds(1), **changes})


async def _claim(store: Any, scene: Scene, actor: str) -> Any:
    return await store.claim(actor, 1, lease=LEASE, queues=[QUEUE])


async def _draw(store: Any, scene: Scene, actor: str) -> Any:
    return await store.line_feed.draw(actor, [Entry(ROW, QUEUE)], lease=LEASE)


async def _renew(store: Any, scene: Scene, actor: str) -> Any:
    report = Report(scene.lease, seconds(1), progress=0.5, message=actor, log=((seconds(0), actor),))
    return await store.renew([report], lease=LEASE * 2)


def _settle(outcome: Outcome) -> "Doing":
    async def settle(store: Any, scene: Scene, actor: str) -> Any:
        job = scene.job
        return await store.settle([settlement(job, outcome, log=((seconds(0), actor),))]) if job else None

    return settle


async def _lapse(store: Any, scene: Scene, actor: str) -> Any:
    job = scene.lapsed or scene.job
    return await store.settle([settlement(job, Lapsed("w"))]) if job else None


async def _cancel(store: Any, scene: Scene, actor: str) -> Any:
    return await store.cancel([ROW])


async def _retry(store: Any, scene: Scene, actor: str) -> Any:
    return await store.retry([ROW])


def _change(change: Change) -> "Doing":
    async def changing(store: Any, scene: Scene, actor: str) -> Any:
        return await store.change(ROW, change)

    return changing


async def _remove(store: Any, scene: Scene, actor: str) -> Any:
    return await store.remove([ROW])


async def _purge(store: Any, scene: Scene, actor: str) -> Any:
    return await store.purge(Status.FAILED, older_than=timedelta(0), limit=10)


def _housekeep(retention: Retention) -> "Doing":
    async def housekeep(store: Any, scene: Scene, actor: str) -> Any:
        return await store.housekeep(retention, limit=10)

    return housekeep


def _set_queue(change: QueueChange) -> "Doing":
    async def set_queue(store: Any, scene: Scene, actor: str) -> Any:
        return await store.set_queue(QUEUE, change)

    return set_queue


def _set_pace(request: PaceRequest | None) -> "Doing":
    async def set_pace(store: Any, scene: Scene, actor: str) -> Any:
        after = await store.paces.set(QUEUE, request, by=actor)
        return after and (after.pace, after.state, after.set_by)  # its counts of jobs are of another moment

    return set_pace


async def _release(store: Any, scene: Scene, actor: str) -> Any:
    return await store.paces.release([QUEUE])


# Looking away: what a verb answers that skipped a row because another transaction had it


def _no_claim(answer: Any) -> bool:
    """A claim that skipped a job says when to come back."""
    return isinstance(answer, Claimed) and not answer.jobs and answer.next_in is not None and answer.next_in <= LOCKED_RETRY


def _nothing_drawn(answer: Any) -> bool:
    return isinstance(answer, Drawn) and not answer.claimed.jobs


def _nothing_purged(answer: Any) -> bool:
    return answer == 0


def _nothing_housekept(answer: Any) -> bool:
    return isinstance(answer, HousekeepingResult) and not answer.expired and not answer.removed


def _nothing_released(answer: Any) -> bool:
    return isinstance(answer, Released) and not answer.jobs


Doing = Callable[[Any, Scene, str], Awaitable[Any]]


class Verb(NamedTuple):
    """One way to call a verb of the port.

    `skipped` recognises the answer of a verb that skips rows that are locked. A verb `in_pieces` is several transactions,
    and other verbs may come between them. A verb that is `usual` races in every run of the tests, the others under
    `make prove`.
    """

    name: str
    port: str
    call: Doing
    skipped: Callable[[Any], bool] | None = None
    in_pieces: bool = False
    usual: bool = True


VERBS = (
    Verb("claim", "Store.claim", _claim, _no_claim, in_pieces=True),
    Verb("draw", "LineFeed.draw", _draw, _nothing_drawn, in_pieces=True),
    Verb("renew", "Store.renew", _renew),
    Verb("succeed", "Store.settle", _settle(DONE)),
    Verb("fail", "Store.settle", _settle(Raised("no"))),
    Verb("break", "Store.settle", _settle(BROKEN), usual=False),
    Verb("hand back", "Store.settle", _settle(HandedBack()), usual=False),
    Verb("lapse", "Store.settle", _lapse),
    Verb("cancel", "Store.cancel", _cancel),
    Verb("retry", "Store.retry", _retry),
    Verb("raise", "Store.change", _change(Change(priority=Priority.HIGH)), usual=False),
    Verb("put off", "Store.change", _change(Change(delay=seconds(60)))),
    Verb("remove", "Store.remove", _remove),
    Verb("purge", "Store.purge", _purge, _nothing_purged, usual=False),
    Verb("housekeep by age", "Store.housekeep", _housekeep(NOTHING_KEPT), _nothing_housekept, in_pieces=True),
    Verb("housekeep by count", "Store.housekeep", _housekeep(NONE_KEPT), _nothing_housekept, in_pieces=True, usual=False),
    Verb("add the same id", "Store.add", _add(id=ROW)),
    Verb("add the same key", "Store.add", _add(key=KEY)),
    Verb("add another request", "Store.add", _add(key=IdempotencyKey("k", b"another")), usual=False),
    Verb("add unique", "Store.add", _add(unique=UNIQUE), usual=False),
    Verb("replace", "Store.add", _add(unique=Unique("u", replace=True), key=IdempotencyKey("k2", b"r"), queue=OTHER_QUEUE)),
    Verb("pause", "Store.set_queue", _set_queue(QueueChange(paused=True, step=seconds(5)))),
    Verb("hook the queue", "Store.set_queue", _set_queue(QueueChange(webhook_url="https://example.org/", strict=True))),
    Verb("set a pace", "PaceStore.set", _set_pace(PaceRequest(burst=1))),
    Verb("remove the pace", "PaceStore.set", _set_pace(None), usual=False),
    Verb("release", "PaceStore.release", _release, _nothing_released, in_pieces=True),
)

READS = "writes nothing"
NO_JOB = "touches no row of a job, a key, a queue or a pace"
PROCESS = "belongs to a process, not to a row"
FIRED_AT_ONCE = "tests/conformance/test_schedules.py calls it at once from several tasks"
SCHEDULE_VERBS = (
    "add",
    "all",
    "backfill",
    "change",
    "define",
    "due",
    "fire",
    "foresee",
    "get",
    "records",
    "remove",
    "trigger",
)
NOT_RACED = {
    "Store.open": PROCESS,
    "Store.close": PROCESS,
    "Store.sibling": PROCESS,
    "Store.subscribe": PROCESS,
    "Store.lease_status": READS,
    "Store.get": READS,
    "Store.find": READS,
    "Store.queues": READS,
    "Store.workers": READS,
    "Store.heartbeat": "writes the row of a worker, which no other process writes",
    "Store.retire": "writes the row of a worker, which no other process writes",
    "PaceStore.all": READS,
    "PaceStore.of": READS,
    "PaceStore.changes": READS,
    "PaceStore.outlook": READS,
    "ApiKeyStore.add": NO_JOB,
    "ApiKeyStore.all": READS,
    "ApiKeyStore.find": READS,
    "ApiKeyStore.revoke": NO_JOB,
    "ApiKeyStore.rotate": NO_JOB,
    "ApiKeyStore.limit": NO_JOB,
    "ApiKeyStore.forget": NO_JOB,
    "ApiKeyStore.use": NO_JOB,
    "ApiKeyStore.name": NO_JOB,
    "ApiKeyStore.waiting": READS,
    "WebhookStore.deliveries": READS,
    "WebhookStore.add_secret": NO_JOB,
    "WebhookStore.ensure_secret": NO_JOB,
    "WebhookStore.forget_secret": NO_JOB,
    "WebhookStore.signing": READS,
    "WebhookStore.disable": NO_JOB,
    "WebhookStore.enable": NO_JOB,
    "WebhookStore.disabled": READS,
    "AuditStore.events": READS,
    "AuditStore.evidence": READS,
    "AuditStore.end": "removes the triggers; no verb depends on them",
    "DiagnosticsStore.overview": READS,
    "DiagnosticsStore.activity": READS,
    "DiagnosticsStore.dead_letters": READS,
    "DiagnosticsStore.notes": READS,
    "Probed.probe": "SQLite alone has it",
    "Transactional.within": "the statements of add, in the transaction of the caller",
    "CallerTransaction.add": "the statements of add, in the transaction of the caller",
    "CallerTransaction.get": READS,
    **{f"ScheduleStore.{verb}": FIRED_AT_ONCE for verb in SCHEDULE_VERBS},
    "Subscription.wake": PROCESS,
    "Subscription.clear": PROCESS,
    "Subscription.wait": PROCESS,
    "LineFeed.wall_us": READS,
    "LineFeed.on_unplaced": PROCESS,
    "LineFeed.read_clock": READS,
    "LineFeed.begin": NO_JOB,
    "LineFeed.bump": NO_JOB,
    "LineFeed.row_places": READS,
    "LineFeed.position": READS,
    "LineFeed.moved": READS,
    "LineFeed.walk": READS,
    "LineFeed.arrangements": READS,
}


# The situations


Making = Callable[[Any, TestClock, dict[str, Any]], Awaitable[Scene]]
_NEVER = Lease(ROW, 1)


async def _absent(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    return Scene(_NEVER)


async def _ready(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.add([_job(**{"key": KEY, "unique": UNIQUE, **extra})])
    return Scene(_NEVER)


async def _scheduled(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    return await _ready(store, clock, {"delay": seconds(60), **extra})


async def _expired(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    scene = await _ready(store, clock, {"expires_in": seconds(1), **extra})
    clock.turn(2)
    return scene


async def _running(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await _ready(store, clock, extra)
    job = await claim_one(store, worker="w")
    clock.turn(1)
    return Scene(job.lease, job)


async def _wished(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    scene = await _running(store, clock, extra)
    await store.cancel([ROW])
    return scene


async def _lapsed(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    scene = await _running(store, clock, extra)
    clock.turn(40)
    return scene._replace(lapsed=await lapsed_one(store))


async def _retrying(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    scene = await _running(store, clock, extra)
    await settle(store, scene.job, Raised("no"))
    clock.turn(5)
    return scene


def _ended(outcome: Outcome) -> Making:
    """The job has ended, and its key has expired."""

    async def ended(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
        scene = await _running(store, clock, {"key": IdempotencyKey("k", b"request", kept=ms(SHORT)), **extra})
        await settle(store, scene.job, outcome)
        clock.turn(1)
        return scene

    return ended


async def _paced(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The pace holds the job, and would release it now."""
    await store.paces.set(QUEUE, request_of(PACE), by="ann")
    scene = await _ready(store, clock, {"delay": seconds(1), **extra})
    clock.turn(2)
    return scene


async def _backlog(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The pace holds the job and two more, and would release two of them now."""
    scene = await _paced(store, clock, extra)
    await store.add([_job(id=id, at=clock.now() - seconds(1)) for id in BEHIND])
    await store.change(BEHIND[0], Change(delay=seconds(0)))
    await store.change(BEHIND[1], Change(delay=seconds(0)))
    clock.turn(1)
    return scene


SITUATIONS: dict[str, Making] = {
    "absent": _absent,
    "ready": _ready,
    "scheduled": _scheduled,
    "expired": _expired,
    "running": _running,
    "wished": _wished,
    "lapsed": _lapsed,
    "retrying": _retrying,
    "completed": _ended(DONE),
    "failed": _ended(BROKEN),
    "cancelled": _ended(GaveUp("no need")),
    "paced": _paced,
    "backlog": _backlog,
}
ONLY = {"backlog": ("release", "set a pace", "remove the pace", "pause")}  # the others meet one job at a time
USUAL_SITUATIONS = ("absent", "ready", "expired", "running", "lapsed", "failed", "paced", "backlog")
USUALLY_HOOKED = ("ready", "running")
HOOKED = {"webhook_url": "https://example.com/", "webhook_on_cancel": True}
