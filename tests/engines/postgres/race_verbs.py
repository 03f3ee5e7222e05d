"""What races: all verbs that write, to jobs and what belongs to them, schedules, API keys, webhooks, statistics, workers and
the record of a line; and the situations in which they meet."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

from demora.core.access import KeyLimits, NewSecret, Scope, key_text, make_key
from demora.core.job import IdempotencyKey, NewJob, Priority, Unique
from demora.core.outbound.webhook import Secret
from demora.core.pace import Pace, PaceRequest, request_of
from demora.core.retention import Keep, Retention
from demora.core.schedules.definitions import Definition
from demora.core.schedules.firing import decide
from demora.core.schedules.schedule import Overlap, Schedule, job_of
from demora.core.schedules.schedule_request import ScheduleRequest
from demora.core.states import Status
from demora.core.verdict import Cancelled, HandedBack, Lapsed, Outcome, Raised
from demora.core.workers import WorkerRecord
from demora.store.jobs import (
    LOCKED_RETRY,
    Change,
    Claimed,
    ClaimRequest,
    HousekeepingResult,
    LapsedJob,
    Lease,
    QueueChange,
    Report,
)
from demora.store.line_feed import ClaimedByIds, Entry
from demora.store.paces import Released
from demora.store.schedules import DueSchedules, Firing, Origin, StoredSchedule
from demora.store.statistics import Depth, Merged
from tests.builders import BROKEN, DONE, LEASE, claim_one, lapsed_one, ms, new_job, seconds, settle, settlement
from tests.clock import TestClock
from tests.conftest import PROFILE

THOROUGH = PROFILE == "explore"  # `make prove`: all ways to call a verb, all situations, and all gates
QUEUE, OTHER_QUEUE = "q", "q2"
ROW = "01900000-0000-7000-8000-00000000000a"  # the job that all verbs are about
OWN = {"ann": "01900000-0000-7000-8000-00000000000b", "bob": "01900000-0000-7000-8000-00000000000c"}
BEHIND = ("01900000-0000-7000-8000-00000000000d", "01900000-0000-7000-8000-00000000000e")  # two more jobs
SHORT = 2000  # milliseconds that the key of an ended job was kept
KEY, UNIQUE = IdempotencyKey("k", b"request"), Unique("u")
PACE = Pace(gap=seconds(10), burst=2, stagger=seconds(1), rapid=None)
SCHEDULE, MINUTE = "tick", timedelta(minutes=1)
FIRST_FIRE_TIME = TestClock().now() + MINUTE
NOTHING_KEPT = Retention(*[Keep(age=timedelta(0))] * 3)
NONE_KEPT = Retention(*[Keep(count=0)] * 3)
ITS_TYPE, OTHER_TYPES = frozenset({"demo.echo"}), frozenset({"other"})
KEY_ID, KEY_TEXTS = "abcdefghijk1", {"ann": "a" * 43, "bob": "b" * 43}
DIGESTS = {"ann": b"a" * 32, "bob": b"b" * 32, "cat": b"c" * 32}
WEBHOOK = "https://example.com/hook"
MOVED = "2099a"  # a newer database of time zones


class Scene(NamedTuple):
    """A job in a situation: the lease that a worker had of it last, and what a claim says of it once that has lapsed. `due`
    is what a look found of a schedule whose fire time is due."""

    lease: Lease
    job: Any = None
    lapsed: LapsedJob | None = None
    due: DueSchedules | None = None


# The port


def _add(**changes: Any) -> "Doing":
    async def add(store: Any, scene: Scene, actor: str) -> Any:
        return await store.add([_job(**{"id": OWN[actor], **changes})])

    return add


def _job(**changes: Any) -> NewJob:
    return new_job(**{"id": ROW, "queue": QUEUE, "max_retries": 1, "retry_delay": seconds(1), **changes})


def _claim(types: frozenset[str] | None = None) -> "Doing":
    async def claim(store: Any, scene: Scene, actor: str) -> Any:
        return await store.claim(ClaimRequest(actor, 1, lease=LEASE, queues=[QUEUE], types=types))

    return claim


def _claim_by_ids(types: frozenset[str] | None = None) -> "Doing":
    async def claim_by_ids(store: Any, scene: Scene, actor: str) -> Any:
        return await store.line_feed.claim_by_ids(ClaimRequest(actor, 1, lease=LEASE, types=types), [Entry(ROW, QUEUE)])

    return claim_by_ids


async def _renew(store: Any, scene: Scene, actor: str) -> Any:
    report = Report(scene.lease, seconds(1), progress=0.5, message=actor, log=((seconds(0), actor),))
    return await store.renew([report], lease=LEASE * 2)


def _settle(outcome: Outcome, *, logs: bool = True) -> "Doing":
    async def settle(store: Any, scene: Scene, actor: str) -> Any:
        log = ((seconds(0), actor),) if logs else ()
        return await store.settle([settlement(scene.job, outcome, log=log)]) if scene.job else None

    return settle


async def _lapse(store: Any, scene: Scene, actor: str) -> Any:
    job = scene.lapsed or scene.job
    return await store.settle([settlement(job, Lapsed("w"))]) if job else None


async def _cancel(store: Any, scene: Scene, actor: str) -> Any:
    return await store.cancel([ROW])


async def _restore(store: Any, scene: Scene, actor: str) -> Any:
    return await store.restore(ROW, within=seconds(30))


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


async def _follow(store: Any, scene: Scene, actor: str) -> Any:
    return await store.paces.follow(QUEUE, by=actor)


async def _release(store: Any, scene: Scene, actor: str) -> Any:
    return await store.paces.release([QUEUE])


async def _add_schedule(store: Any, scene: Scene, actor: str) -> Any:
    return _stored(await store.schedules.add(a_schedule(tags=(actor,)), origin=Origin.API, by=actor))


async def _define(store: Any, scene: Scene, actor: str) -> Any:
    definition = Definition("shop", actor, (a_schedule(tags=(actor,)),))
    return [(one.name, one.result, one.kept) for one in await store.schedules.define(definition)]


def _change_schedule(**changes: Any) -> "Doing":
    async def change(store: Any, scene: Scene, actor: str) -> Any:
        return _stored(await store.schedules.change(SCHEDULE, ScheduleRequest(**changes), by=actor))

    return change


async def _remove_schedule(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.remove(SCHEDULE)


async def _fire(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.fire(firings(scene.due, OWN[actor])) if scene.due else None


def firings(due: DueSchedules, id: str) -> list[Firing]:
    decisions = [(one, decide(one.schedule, one.progress, due.now, one.previous)) for one in due.schedules]
    return [
        Firing(one, decision, tuple(job_of(one.schedule, id, fire_time=fire_time) for fire_time in decision.fired))
        for one, decision in decisions
    ]


async def _trigger(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.trigger(SCHEDULE, job_of(a_schedule(), OWN[actor]))


async def _backfill(store: Any, scene: Scene, actor: str) -> Any:
    fire_time = FIRST_FIRE_TIME
    return await store.schedules.backfill(
        SCHEDULE, [(fire_time, job_of(a_schedule(), OWN[actor], fire_time=fire_time, delay=seconds(0)))]
    )


def a_schedule(**changes: Any) -> Schedule:
    usual = {"type": "t", "payload": b"{}", "recorded_at": FIRST_FIRE_TIME - MINUTE, "every": MINUTE, "queue": QUEUE}
    return Schedule(name=SCHEDULE, max_retries=1, **{**usual, **changes})


def _stored(found: StoredSchedule | None) -> Any:
    """Of a schedule what its writer decided; a verb reads it again after its commit, when others may have gone on."""
    return found and (found.schedule, found.changed_by)


async def _foresee(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.foresee(MOVED)


async def _attend(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.attend("p")


async def _leave(store: Any, scene: Scene, actor: str) -> Any:
    return await store.schedules.leave("p")


async def _heartbeat(store: Any, scene: Scene, actor: str) -> Any:
    return await store.heartbeat(WorkerRecord("w", "host", 1, 4, types=tuple(ITS_TYPE)))


async def _retire(store: Any, scene: Scene, actor: str) -> Any:
    return await store.retire("w")


async def _begin_events(store: Any, scene: Scene, actor: str) -> Any:
    return await store.events.begin()


async def _begin_line(store: Any, scene: Scene, actor: str) -> Any:
    return (await store.line_feed.begin()).epoch  # the name of the database is drawn


async def _bump(store: Any, scene: Scene, actor: str) -> Any:
    record = await store.line_feed.bump(0, above=3, run=actor)
    return record.epoch, record.run


async def _merge(store: Any, scene: Scene, actor: str) -> Any:
    return await store.statistics.merge(limit=100)


async def _sample(store: Any, scene: Scene, actor: str) -> Any:
    return await store.statistics.sample({QUEUE: Depth(ready=3, delayed=2)})


def _of_keys(call: Callable[[Any, str], Awaitable[Any]]) -> "Doing":
    async def doing(store: Any, scene: Scene, actor: str) -> Any:
        return await call(store.api_keys, actor)

    return doing


def _of_webhooks(call: Callable[[Any, str], Awaitable[Any]]) -> "Doing":
    async def doing(store: Any, scene: Scene, actor: str) -> Any:
        return await call(store.webhooks, actor)

    return doing


def _key_of(actor: str) -> Any:
    return make_key(key_text(KEY_ID, KEY_TEXTS[actor]), actor, [Scope.READ])


def _secret_of(actor: str) -> Secret:
    return Secret(actor.encode() * 12)


# Looking away: what a verb answers that skipped a row because another transaction had it


def _no_claim(answer: Any) -> bool:
    """A claim that skipped a job says when to come back."""
    return isinstance(answer, Claimed) and not answer.jobs and answer.next_in is not None and answer.next_in <= LOCKED_RETRY


def _no_id_claimed(answer: Any) -> bool:
    return isinstance(answer, ClaimedByIds) and not answer.claimed.jobs


def _nothing_purged(answer: Any) -> bool:
    return answer == 0


def _nothing_housekept(answer: Any) -> bool:
    return isinstance(answer, HousekeepingResult) and not answer.expired and not answer.removed


def _nothing_merged(answer: Any) -> bool:
    return answer == Merged(more=False, sample=False)


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
    Verb("claim", "Store.claim", _claim(), _no_claim, in_pieces=True),
    Verb("claim its type", "Store.claim", _claim(ITS_TYPE), _no_claim, in_pieces=True),
    Verb("claim other types", "Store.claim", _claim(OTHER_TYPES), _no_claim, in_pieces=True),
    Verb("claim by ids", "LineFeed.claim_by_ids", _claim_by_ids(), _no_id_claimed, in_pieces=True),
    Verb("claim its type by ids", "LineFeed.claim_by_ids", _claim_by_ids(ITS_TYPE), _no_id_claimed, in_pieces=True),
    Verb(
        "claim other types by ids",
        "LineFeed.claim_by_ids",
        _claim_by_ids(OTHER_TYPES),
        _no_id_claimed,
        in_pieces=True,
    ),
    Verb("renew", "Store.renew", _renew),
    Verb("succeed", "Store.settle", _settle(DONE)),
    Verb("succeed plainly", "Store.settle", _settle(DONE, logs=False)),
    Verb("fail", "Store.settle", _settle(Raised("no"))),
    Verb("break", "Store.settle", _settle(BROKEN), usual=False),
    Verb("hand back", "Store.settle", _settle(HandedBack()), usual=False),
    Verb("lapse", "Store.settle", _lapse),
    Verb("cancel", "Store.cancel", _cancel),
    Verb("undo the cancel", "Store.restore", _restore),
    Verb("retry", "Store.retry", _retry),
    Verb("raise", "Store.change", _change(Change(priority=Priority.HIGH)), usual=False),
    Verb("put off", "Store.change", _change(Change(delay=seconds(60)))),
    Verb("remove", "Store.remove", _remove),
    Verb("purge", "Store.purge", _purge, _nothing_purged, usual=False),
    Verb("housekeep by age", "Store.housekeep", _housekeep(NOTHING_KEPT), _nothing_housekept, in_pieces=True),
    Verb("housekeep by count", "Store.housekeep", _housekeep(NONE_KEPT), _nothing_housekept, in_pieces=True),
    Verb("add the same id", "Store.add", _add(id=ROW)),
    Verb("add the same key", "Store.add", _add(key=KEY)),
    Verb("add another request", "Store.add", _add(key=IdempotencyKey("k", b"another")), usual=False),
    Verb("add unique", "Store.add", _add(unique=UNIQUE), usual=False),
    Verb("replace", "Store.add", _add(unique=Unique("u", replace=True), key=IdempotencyKey("k2", b"r"), queue=OTHER_QUEUE)),
    Verb("pause", "Store.set_queue", _set_queue(QueueChange(paused=True, step=seconds(5)))),
    Verb("hook the queue", "Store.set_queue", _set_queue(QueueChange(webhook_url="https://example.org/", strict=True))),
    Verb("set a pace", "PaceStore.set", _set_pace(PaceRequest(burst=1))),
    Verb("remove the pace", "PaceStore.set", _set_pace(None), usual=False),
    Verb("follow the pace of all queues", "PaceStore.follow", _follow),
    Verb("release", "PaceStore.release", _release, _nothing_released, in_pieces=True),
    Verb("fire", "ScheduleStore.fire", _fire),
    Verb("add the schedule", "ScheduleStore.add", _add_schedule),
    Verb("define the schedule", "ScheduleStore.define", _define),
    Verb("change the schedule", "ScheduleStore.change", _change_schedule(every="5m", tags=["new"])),
    Verb("pause the schedule", "ScheduleStore.change", _change_schedule(enabled=False, reason="why")),
    Verb("remove the schedule", "ScheduleStore.remove", _remove_schedule),
    Verb("trigger", "ScheduleStore.trigger", _trigger),
    Verb("backfill", "ScheduleStore.backfill", _backfill),
    Verb("foresee", "ScheduleStore.foresee", _foresee),
    Verb("attend", "ScheduleStore.attend", _attend),
    Verb("leave", "ScheduleStore.leave", _leave),
    Verb("heartbeat", "Store.heartbeat", _heartbeat),
    Verb("retire", "Store.retire", _retire),
    Verb("begin events", "EventStore.begin", _begin_events),
    Verb("begin the line", "LineFeed.begin", _begin_line),
    Verb("bump the line", "LineFeed.bump", _bump),
    Verb("merge", "StatisticsStore.merge", _merge, _nothing_merged),
    Verb("sample", "StatisticsStore.sample", _sample),
    Verb("add the key", "ApiKeyStore.add", _of_keys(lambda keys, actor: keys.add(_key_of(actor)))),
    Verb("revoke the key", "ApiKeyStore.revoke", _of_keys(lambda keys, _: keys.revoke(KEY_ID))),
    Verb(
        "rotate the key",
        "ApiKeyStore.rotate",
        _of_keys(lambda keys, actor: keys.rotate(NewSecret(KEY_ID, DIGESTS[actor], overlap=MINUTE))),
    ),
    Verb("limit the key", "ApiKeyStore.limit", _of_keys(lambda keys, actor: keys.limit(KEY_ID, KeyLimits(rate=len(actor))))),
    Verb("forget the key", "ApiKeyStore.forget", _of_keys(lambda keys, _: keys.forget(KEY_ID))),
    Verb("use the key", "ApiKeyStore.use", _of_keys(lambda keys, _: keys.use(KEY_ID, unless_within=MINUTE))),
    Verb(
        "name a queue",
        "ApiKeyStore.name",
        _of_keys(lambda keys, actor: keys.name(KEY_ID, {actor}, set(), KeyLimits(max_queues=2))),
    ),
    Verb(
        "open a session",
        "ApiKeyStore.open_session",
        _of_keys(lambda keys, actor: keys.open_session(DIGESTS[actor], KEY_ID, expires_in=MINUTE)),
    ),
    Verb("end the session", "ApiKeyStore.end_session", _of_keys(lambda keys, _: keys.end_session(DIGESTS["cat"]))),
    Verb(
        "replace the secret",
        "WebhookStore.add_secret",
        _of_webhooks(lambda hooks, actor: hooks.add_secret(actor, _secret_of(actor), others_end_in=MINUTE)),
    ),
    Verb(
        "add a secret",
        "WebhookStore.add_secret",
        _of_webhooks(lambda hooks, actor: hooks.add_secret(actor, _secret_of(actor))),
    ),
    Verb(
        "ensure a secret",
        "WebhookStore.ensure_secret",
        _of_webhooks(lambda hooks, actor: hooks.ensure_secret(_secret_of(actor))),
    ),
    Verb("forget the secret", "WebhookStore.forget_secret", _of_webhooks(lambda hooks, _: hooks.forget_secret("cat"))),
    Verb("disable the URL", "WebhookStore.disable", _of_webhooks(lambda hooks, actor: hooks.disable(WEBHOOK, actor))),
    Verb("enable the URL", "WebhookStore.enable", _of_webhooks(lambda hooks, _: hooks.enable(WEBHOOK))),
)

READS = "writes nothing"
PROCESS = "belongs to a process, not to a row"
NOT_RACED = {
    "Store.open": PROCESS,
    "Store.close": PROCESS,
    "Store.sibling": PROCESS,
    "Store.subscribe": PROCESS,
    "Store.lease_status": READS,
    "Store.claimed": READS,
    "Store.leased": READS,
    "Store.get": READS,
    "Store.find": READS,
    "Store.count": READS,
    "Store.queues": READS,
    "Store.workers": READS,
    "EventStore.position": READS,
    "EventStore.settled": READS,
    "EventStore.added": READS,
    "EventStore.running": READS,
    "EventStore.queue_signs": READS,
    "PaceStore.all": READS,
    "PaceStore.of": READS,
    "PaceStore.changes": READS,
    "PaceStore.outlook": READS,
    "PaceStore.outlooks": READS,
    "ApiKeyStore.all": READS,
    "ApiKeyStore.find": READS,
    "ApiKeyStore.find_sessions": READS,
    "ApiKeyStore.database_id": READS,
    "ApiKeyStore.waiting": READS,
    "WebhookStore.deliveries": READS,
    "WebhookStore.signing": READS,
    "WebhookStore.disabled": READS,
    "AuditStore.events": READS,
    "AuditStore.evidence": READS,
    "AuditStore.end": "removes the triggers; no verb depends on them",
    "DiagnosticsStore.overview": READS,
    "DiagnosticsStore.activity": READS,
    "DiagnosticsStore.coming": READS,
    "StatisticsStore.read": READS,
    "StatisticsStore.added": READS,
    "StatisticsStore.standing": READS,
    "DiagnosticsStore.dead_letters": READS,
    "DiagnosticsStore.notes": READS,
    "DiagnosticsStore.sizes": READS,
    "Taking.begin": PROCESS,
    "Taking.take": PROCESS,
    "Probed.probe": "SQLite alone has it",
    "Transactional.within": "the statements of add, in the transaction of the caller",
    "CallerTransaction.add": "the statements of add, in the transaction of the caller",
    "CallerTransaction.get": READS,
    "ScheduleStore.get": READS,
    "ScheduleStore.all": READS,
    "ScheduleStore.due": READS,
    "ScheduleStore.records": READS,
    "ScheduleStore.live": READS,
    "ScheduleStore.attending": READS,
    "Subscription.wake": PROCESS,
    "Subscription.clear": PROCESS,
    "Subscription.wait": PROCESS,
    "LineFeed.wall_us": READS,
    "LineFeed.on_unplaced": PROCESS,
    "LineFeed.read_clock": READS,
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


async def _no_schedule(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    return Scene(_NEVER)


async def _fire_time_due(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.schedules.add(a_schedule(**extra), origin=Origin.API, by="cat")
    clock.turn(60)
    return Scene(_NEVER, due=await store.schedules.due(limit=10))


async def _second_fire_time_due(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The job of the first fire time waits, and the second fire time is to replace it."""
    first = await _fire_time_due(store, clock, {"overlap": Overlap.REPLACE, **extra})
    assert first.due is not None
    await store.schedules.fire(firings(first.due, ROW))
    clock.turn(60)
    return Scene(_NEVER, due=await store.schedules.due(limit=10))


async def _fire_time_beside_a_run(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The job of the first fire time runs, and the second fire time is to wait for its end."""
    scene = await _second_fire_time_due(store, clock, {"overlap": Overlap.QUEUE})
    job = await claim_one(store, worker="w")
    return scene._replace(lease=job.lease, job=job, due=await store.schedules.due(limit=10))


async def _defined(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The code of an application has defined the schedule, and its fire time is due."""
    await store.schedules.define(Definition("shop", "cat", (a_schedule(**extra),)))
    clock.turn(60)
    return Scene(_NEVER, due=await store.schedules.due(limit=10))


async def _moved_fire_time(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The fire time of a schedule, which is due, stands a second too late by another database of time zones."""
    await store.schedules.add(a_schedule(**extra), origin=Origin.API, by="cat")
    async with store._database.opened().session() as session:
        sql = "update demora.schedules set next_at = next_at + 1000"
        await session.script(sql.replace("demora.", f"{store.options.schema}."))
    clock.turn(61)
    return Scene(_NEVER, due=await store.schedules.due(limit=10))


async def _parked(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """A claim has parked the job, and a live worker does not know its type."""
    scene = await _ready(store, clock, extra)
    await store.heartbeat(WorkerRecord("w", "host", 1, 4, types=tuple(OTHER_TYPES)))
    await store.claim(ClaimRequest("w", 1, lease=LEASE, queues=[QUEUE], types=OTHER_TYPES))
    return scene


async def _unknown(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """No live worker has known the type of the parked job for an hour."""
    scene = await _parked(store, clock, extra)
    await store.housekeep(Retention(), limit=10)
    clock.turn(3600)
    await store.heartbeat(WorkerRecord("w", "host", 1, 4, types=tuple(OTHER_TYPES)))
    return scene


async def _known_again(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """Every live worker knows the type of the parked job and of one that waits behind it."""
    scene = await _parked(store, clock, extra)
    await store.add([_job(id=BEHIND[0])])
    await store.heartbeat(WorkerRecord("w", "host", 1, 4, types=tuple(ITS_TYPE)))
    return scene


async def _key(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.api_keys.add(make_key(key_text(KEY_ID, "c" * 43), "cat", [Scope.READ]))
    await store.api_keys.name(KEY_ID, {"cat"}, set(), KeyLimits(max_queues=2))
    await store.api_keys.open_session(DIGESTS["cat"], KEY_ID, expires_in=MINUTE)
    return Scene(_NEVER)


async def _revoked_key(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    scene = await _key(store, clock, extra)
    await store.api_keys.revoke(KEY_ID)
    return scene


async def _secrets(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.webhooks.add_secret("cat", _secret_of("cat"))
    return Scene(_NEVER)


async def _disabled_url(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.webhooks.disable(WEBHOOK, "410")
    return Scene(_NEVER)


async def _line(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    await store.line_feed.begin()
    store._database.opened().lined = False
    return Scene(_NEVER)


async def _closed_windows(store: Any, clock: TestClock, extra: dict[str, Any]) -> Scene:
    """The windows of a run that ended are closed, and another job runs."""
    await store.add([_job(id=BEHIND[0])])
    await settle(store, await claim_one(store), DONE)
    clock.turn(60)
    return await _running(store, clock, extra)


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
    "cancelled": _ended(Cancelled("no need")),
    "paced": _paced,
    "backlog": _backlog,
    "no schedule": _no_schedule,
    "fire time due": _fire_time_due,
    "second fire time due": _second_fire_time_due,
    "fire time beside a run": _fire_time_beside_a_run,
    "one dead letter": _ended(BROKEN),
    "a defined schedule": _defined,
    "moved fire time": _moved_fire_time,
    "parked": _parked,
    "unknown": _unknown,
    "known again": _known_again,
    "no key": _absent,
    "a key": _key,
    "a revoked key": _revoked_key,
    "no secret": _absent,
    "secrets": _secrets,
    "a disabled URL": _disabled_url,
    "closed windows": _closed_windows,
    "no line": _absent,
    "a line": _line,
}


def _about(*ports: str) -> tuple[str, ...]:
    return tuple(verb.name for verb in VERBS if verb.port.startswith(ports))


ABOUT_SCHEDULES, ABOUT_KEYS, ABOUT_WEBHOOKS = _about("ScheduleStore."), _about("ApiKeyStore."), _about("WebhookStore.")
ABOUT_WORKERS, ABOUT_LINES = _about("Store.heartbeat", "Store.retire"), _about("LineFeed.begin", "LineFeed.bump")
BY_TYPE = ("claim its type", "claim its type by ids", "claim other types by ids")
RARER = (*BY_TYPE, "housekeep by count")  # in the situations that are about them
ABOUT_JOBS = tuple(
    name
    for name in _about("Store.", "PaceStore.", "LineFeed.claim_by_ids")
    if name not in ABOUT_WORKERS and (name not in RARER or THOROUGH)
)
PARKING = ("claim", "claim other types", *BY_TYPE, "cancel", "put off", "housekeep by age", "replace", *ABOUT_WORKERS)
ONLY = {  # the others meet one job at a time, and no schedule
    "backlog": ("release", "set a pace", "remove the pace", "pause"),
    "no schedule": ("add the schedule", "define the schedule"),
    "fire time due": ABOUT_SCHEDULES,
    "second fire time due": ("fire", "backfill", "remove the schedule", "claim", "cancel", "put off"),
    "fire time beside a run": ("fire", "change the schedule", "succeed", "fail", "cancel", "renew"),
    "one dead letter": ("housekeep by count", "retry", "remove", "add the same id"),
    "a defined schedule": ("define the schedule", "change the schedule", "remove the schedule", "fire"),
    "moved fire time": ("foresee", "fire", "change the schedule", "remove the schedule", "backfill"),
    "parked": (*PARKING, "add the same key", "claim by ids", "pause"),
    "unknown": PARKING,
    "known again": PARKING,
    "no key": ("add the key", "forget the key", "name a queue", "open a session"),
    "a key": ABOUT_KEYS,
    "a revoked key": ABOUT_KEYS,
    "no secret": ABOUT_WEBHOOKS,
    "secrets": ABOUT_WEBHOOKS,
    "a disabled URL": ("disable the URL", "enable the URL"),
    "closed windows": ("merge", "sample", "succeed", "succeed plainly", "fail", "begin events"),
    "no line": ("begin the line", "begin events"),
    "a line": ABOUT_LINES,
}
OF_SCHEDULES = ("no schedule", "fire time due", "second fire time due", "fire time beside a run")
OF_PARTS = (
    "one dead letter",
    "a defined schedule",
    "moved fire time",
    "parked",
    "unknown",
    "known again",
    "no key",
    "a key",
    "a revoked key",
    "no secret",
    "secrets",
)
OF_PARTS += ("a disabled URL", "closed windows", "no line", "a line")
USUAL_SITUATIONS = (
    "absent",
    "ready",
    "expired",
    "running",
    "lapsed",
    "failed",
    "paced",
    "backlog",
    *OF_SCHEDULES,
    *OF_PARTS,
)
USUALLY_HOOKED = ("ready", "running")
HOOKED = {"webhook_url": "https://example.com/", "webhook_on_cancel": True}
