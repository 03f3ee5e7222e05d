"""Writes to jobs outside of a run: adding them, changes on request, the purge, housekeeping, and webhook deliveries.

Each change is a guarded write of many jobs at once. Jobs are added in one statement if none has an idempotency key or is
unique, else in one transaction.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

import asyncpg
import msgspec

from ....core.action import RESUMED_TYPES
from ....core.job import Lane, NewJob, Priority, due_ms, revision
from ....core.outbound.webhook import delivery
from ....core.retention import Keep, Retention
from ....core.spans import from_ms, span_ms, to_ms
from ....core.states import RETRYABLE, Status
from ....core.verdict import CANCELLED_WAITING, EXPIRED, RESCHEDULED_LANE, RETRIED, RETRIED_LANE, UNKNOWN_TYPE, waiting_after
from ....core.workers import ParkedType, failing_until, fails_at, judge
from ....store.jobs import Added, Answer, Change, HousekeepingResult, Topic
from ....system import crash
from ...sql import columns, constants
from ...sql.adding import replay, with_stored
from ...sql.retention import OVERDUE, RetentionLimits
from ...sql.schedules import ScheduledJob
from .. import registry, rows
from ..connection.connections import Session

_NONE = Answer(False, None)
_LANES = {
    "queued": Status.QUEUED.value,
    "scheduled": Lane.SCHEDULED.value,
    "realtime": Lane.REALTIME.value,
}


async def add_new(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    """`add_plain` outside of a transaction. It assumes that all ids are new; if one is not, the statement writes nothing,
    and `add_plain` is used after all."""
    if not session.again:
        with contextlib.suppress(asyncpg.UniqueViolationError):
            added = await store(session, jobs, named, how="_new")
            return [added[job.id] for job in jobs]
    return await add_plain(session, jobs, named)


async def add_plain(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    """Record jobs in one statement; queues in `named` are known to be on record. On a second try (`session.again`) the jobs
    that are there were stored by the first, so they are no replays."""
    return await _add_plain(session, jobs, named, await _taken(session, jobs) if session.again else {})


async def _add_plain(session: Session, jobs: Sequence[NewJob], named: Set[str], known: Mapping[str, Added]) -> list[Added]:
    added, before = await store(session, jobs, named), dict[str, Added]()
    if len(added) == len(jobs):
        return [added[job.id] for job in jobs]
    while missing := [job for job in jobs if not any(job.id in found for found in (added, known, before))]:
        before |= await _taken(session, missing)
        removed = [job for job in missing if job.id not in before]  # deleted since the statement found them
        added |= await store(session, removed, named)
    answers, seen = [], set[str]()
    for job in jobs:
        answer = added.get(job.id) or known.get(job.id) or before[job.id]
        replayed = job.id in seen or job.id in before
        seen.add(job.id)
        answers.append(msgspec.structs.replace(answer, replayed=True) if replayed else answer)
    return answers


async def add(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    """Record jobs of which some have idempotency keys or are unique, all or none."""
    known = await _taken(session, jobs) if session.again else {}
    transaction = session.transaction()
    await transaction.start()
    try:
        answers = await _add(session, jobs, named)
    except BaseException:
        await transaction.rollback()
        raise
    if any(answer.conflict for answer in answers):
        session.topics.clear()
        await transaction.rollback()
    else:
        crash.at("batch.applied")
        await transaction.commit()
    return [
        _as_new(answer) if answer.id == job.id and answer.id in known else answer
        for job, answer in zip(jobs, answers, strict=True)
    ]


def _as_new(answer: Added) -> Added:
    return msgspec.structs.replace(answer, replayed=False)


async def _add(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    if session.wall_us is None:  # one time for the keys and for their jobs
        session.wall_us = (await session.row("now"))["us"]
    held = await _take_keys(session, jobs)
    answers: list[Added | None] = []
    taken: dict[tuple[str, str], tuple[bytes, Added]] = {}
    for job in jobs:
        answers.append(_known(session, job, held, taken))
    if any(answer is not None and answer.conflict for answer in answers):
        return [answer or _new(_now(session), job) for job, answer in zip(jobs, answers, strict=True)]
    fresh = [job for job, answer in zip(jobs, answers, strict=True) if answer is None]
    stored = await _store_fresh(session, fresh, named)
    return with_stored(answers, fresh, stored)


async def _take_keys(session: Session, jobs: Sequence[NewJob]) -> dict[tuple[str, str], Any]:
    """Take the keys of these jobs, and return those that are taken already."""
    wanted = {(job.key.scope, job.key.key): job for job in reversed(jobs) if job.key is not None}
    if not wanted:
        return {}
    keyed = [(job.key, job) for job in wanted.values() if job.key is not None]
    got = await session.rows(
        "take_keys",
        scopes=[key.scope for key, _ in keyed],
        keys=[key.key for key, _ in keyed],
        hashes=[key.request_hash for key, _ in keyed],
        ids=[job.id for _, job in keyed],
        ats=[None if job.at is None else to_ms(job.at) for _, job in keyed],
        delays=[None if job.delay is None else span_ms(job.delay) for _, job in keyed],
        kepts=[span_ms(key.kept) for key, _ in keyed],
    )
    others = wanted.keys() - {(row["scope"], row["key"]) for row in got}
    if not others:
        return {}
    held = await session.rows("keys_taken", scopes=[scope for scope, _ in others], keys=[key for _, key in others])
    return {(row["scope"], row["key"]): row for row in held}


def _known(
    session: Session,
    job: NewJob,
    held: dict[tuple[str, str], Any],
    taken: dict[tuple[str, str], tuple[bytes, Added]],
) -> Added | None:
    """The answer for a key that was used before, in this call or an earlier one; None for a new key."""
    key = job.key
    if key is None:
        return None
    if (key.scope, key.key) in taken:
        request_hash, first = taken[key.scope, key.key]
    elif (key.scope, key.key) in held:
        row = held[key.scope, key.key]
        request_hash = row["request_hash"]
        first = Added(str(row["job_id"]), from_ms(row["created_at"]), from_ms(row["scheduled_at"]))
    else:
        taken[key.scope, key.key] = key.request_hash, _new(_now(session), job)
        return None
    return replay(first, same=request_hash == key.request_hash)


def _new(now: datetime, job: NewJob) -> Added:
    """The answer for a job that is stored now. The statement computes the same due time."""
    at_once = job.at is None and job.delay is None
    return Added(job.id, now, now if at_once else from_ms(due_ms(job.at, job.delay, to_ms(now))))


def _now(session: Session) -> datetime:
    assert session.wall_us is not None
    return from_ms(session.wall_us // 1000)


async def _store_fresh(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    if all(job.unique is None for job in jobs):
        return await _add_plain(session, jobs, named, {}) if jobs else []
    return [await _store_one(session, job, named) for job in jobs]


async def _store_one(session: Session, job: NewJob, named: Set[str]) -> Added:
    """Record a job that may be unique: it is stored, or another job stands for it."""
    while True:
        before = await _taken(session, [job])
        if before:
            return msgspec.structs.replace(before[job.id], replayed=True)
        if job.unique is not None:
            waiting = await session.row("unique_waiting", key=job.unique.key, type=job.type, namespace=job.namespace)
            if waiting is not None:
                return await _stand_in(session, job, waiting, named)
        added = await store(session, [job], named)
        if added:
            return added[job.id]


async def _stand_in(session: Session, job: NewJob, waiting: Any, named: Set[str]) -> Added:
    """Keep or replace the unique job that waits already. The new job's idempotency key then leads to it."""
    assert job.unique is not None
    id, created_at, scheduled_at, queue = waiting
    if job.key is not None:
        await session.rows("rekey", scope=job.key.scope, key=job.key.key, id=id)
    if job.unique.replace:
        row = await session.row("replace_waiting", **_LANES, **{**rows.new_job(job), "id": id})
        scheduled_at = row["due_at"]
        await session.rows("name_queue", name=job.queue)
        session.topics |= {Topic.READY, Topic.EXPIRY}
    replace = job.unique.replace
    left = queue if replace else None
    return Added(str(id), from_ms(created_at), from_ms(scheduled_at), kept=not replace, left=left)


async def store(
    session: Session, jobs: Sequence[NewJob], named: Set[str], how: Literal["", "_new"] = ""
) -> dict[str, Added]:
    """Store jobs, and return those that were new, by id."""
    if not jobs:
        return {}
    if len(jobs) == 1 and _is_simple(jobs[0]) and jobs[0].queue in named:
        return await _store_simple(session, jobs[0], how)
    if how == "_new" and all(map(_is_simple, jobs)):
        return await _store_due(session, jobs, named)
    unnamed = list({job.queue for job in jobs} - named)
    ready, expiry, wall, added = await session.row("add" + how, unnamed=unnamed, **_LANES, **rows.new_jobs(jobs))
    if ready:
        session.wake(Topic.READY)
    if expiry:
        session.wake(Topic.EXPIRY)
    ids = None if added is None else {str(id) for id in added}
    now = from_ms(wall)
    # Of jobs with the same id, the first counts.
    return {job.id: _new(now, job) for job in reversed(jobs) if ids is None or job.id in ids}


async def store_of_schedules(session: Session, jobs: Sequence[ScheduledJob]) -> None:
    """Store jobs of schedules, whose ids are new."""
    await session.rows(
        "add_of_schedules",
        **_LANES,
        **rows.new_jobs([one.job for one in jobs]),
        unnamed=list({one.job.queue for one in jobs}),
        schedules=[one.schedule for one in jobs],
        fire_times=[one.slot_at for one in jobs],
    )
    session.wake(Topic.READY)
    session.unplaced = True


def _is_simple(job: NewJob) -> bool:
    """Whether the job is due at once, never expires and is not unique."""
    never_expires = job.expires_at is None and job.expires_in is None
    return job.at is None and job.delay is None and never_expires and job.unique is None


async def _store_simple(session: Session, job: NewJob, how: str) -> dict[str, Added]:
    """`store` for the most common kind of job: its statement takes half the time."""
    added = await session.row("add_one" + how, **_LANES, **rows.new_job(job))
    if added is None:
        return {}
    session.wake(Topic.READY)
    return {job.id: _new(from_ms(added["created_at"]), job)}


async def _store_due(session: Session, jobs: Sequence[NewJob], named: Set[str]) -> dict[str, Added]:
    """`store` for simple jobs whose ids are new: its statement returns only the time."""
    unnamed = list({job.queue for job in jobs} - named)
    row = await session.row("add_due", unnamed=unnamed, **_LANES, **rows.due_jobs(jobs))
    session.wake(Topic.READY)
    now = from_ms(row["wall"])
    return {job.id: Added(job.id, now, now) for job in jobs}


async def _taken(session: Session, jobs: Sequence[NewJob]) -> dict[str, Added]:
    """The jobs that exist already, by id."""
    found = await session.rows("ids_taken", ids=[job.id for job in jobs])
    return {str(id): Added(str(id), from_ms(created_at), from_ms(at)) for id, created_at, at in found}


# Changes on request, and the purge


async def cancel(session: Session, ids: Sequence[str]) -> list[Answer]:
    """Cancel jobs, in a transaction of the caller."""
    what = {"cancelled": CANCELLED_WAITING.status.value, "error": CANCELLED_WAITING.error}
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        found = await session.rows("cancel", ids=_keys(part), with_deliveries=False, **what)
        if put_off := [str(row["id"]) for row in found if row["put_off"]]:
            async with with_deliveries(session) as ended:
                hooked = await session.rows("cancel", ids=put_off, with_deliveries=True, **what)
                ended += [str(row["id"]) for row in hooked if row["ended"]]
            found = [*found, *hooked]
        if any(row["ended"] for row in found):
            session.wake(Topic.ENDED)
        answers += _answers(part, found)
    return answers


async def retry(session: Session, ids: Sequence[str], at: datetime | None = None) -> list[Answer]:
    """Start new generations of jobs, in a transaction of the caller."""
    what = {
        "queued": RETRIED.value,
        "lane": RETRIED_LANE.value,
        "from": sorted(RETRYABLE),
        "resumed": list(RESUMED_TYPES),
    }
    what["at"] = 0 if at is None else to_ms(at)
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        found = await session.rows("retry", ids=_keys(part), **what)
        if any(row["did"] for row in found):
            session.wake(Topic.READY)
        answers += _answers(part, found)
    return answers


async def restore(session: Session, id: str, within: int) -> Answer:
    """Undo a cancel, in two statements of one transaction: the second also sees a cancel, and the delivery that tells of it,
    for which the first had to wait. The attempts of the job cannot change in between."""
    async with session.transaction():
        found = await session.rows("lock", ids=_keys([id]))
        if not found:
            return _NONE
        [(key, _, attempt)] = found
        waiting = waiting_after(attempt).value
        row = await session.row("restore", id=key, status=waiting, error=CANCELLED_WAITING.error, within=within)
    if row["did"]:
        session.wake(Topic.READY)
    return Answer(row["did"], Status(row["status"]))


async def change(session: Session, id: str, change: Change) -> Answer:
    row = await session.row(
        "change",
        id=rows.id_key(id),
        rank=None if change.priority is None else change.priority.value,
        tags=None if change.tags is None else json.dumps(change.tags),
        at=None if change.at is None else to_ms(change.at),
        delay=None if change.delay is None else span_ms(change.delay),
        lane=RESCHEDULED_LANE.value,
    )
    if row is None:
        return _NONE
    if row["ready"]:
        session.wake(Topic.READY)
    return Answer(row["did"], Status(row["status"]))


async def change_revision(session: Session, id: str, revisions: Container[str], wanted: Change) -> Answer:
    """Change a job that has one of these revisions, in a transaction of the caller."""
    await session.rows("lock", ids=_keys([id]))
    job = await rows.get(session, id)
    if job is not None and revision(job) not in revisions:
        return Answer(False, job.status)
    return await change(session, id, wanted)


async def remove(session: Session, ids: Sequence[str]) -> list[Answer]:
    """Delete jobs, in a transaction of the caller."""
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        found = {str(id): Status(status) for id, status, _ in await session.rows("lock", ids=_keys(part))}
        await session.rows("delete", ids=[id for id, status in found.items() if status.ended])
        answers += [_NONE if (status := found.get(id.lower())) is None else Answer(status.ended, status) for id in part]
    return answers


async def purge(session: Session, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    names = [queue] if queue is not None else [row["name"] for row in await session.rows("queue_names")]
    removed = 0
    for name in names:
        if removed < limit:
            removed += await remove_ended(session, name, status, older_than, limit - removed)
    await forget_keys(session, limit)
    return removed


async def remove_ended(session: Session, queue: str, status: Status, older_than: int, limit: int) -> int:
    """Delete up to `limit` jobs that ended with this status `older_than` milliseconds ago, the oldest first."""
    return await _delete(session, "purge", queue=queue, status=status.value, older_than=older_than, limit=limit)


async def remove_beyond(session: Session, queue: str, status: Status, newest: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status, but keep the `newest` ones."""
    return await _delete(session, "purge_beyond", queue=queue, status=status.value, newest=newest, limit=limit)


async def _delete(session: Session, doomed: str, **what: Any) -> int:
    """Delete the jobs that a statement chooses and locks."""
    async with session.transaction():
        ids = [id for (id,) in await session.rows(doomed, **what)]
        if ids:
            await session.rows("delete", ids=ids)
    return len(ids)


async def forget_keys(session: Session, limit: int) -> None:
    """Delete up to `limit` idempotency keys that expired."""
    await session.rows("purge_keys", limit=limit)


def _answers(ids: Sequence[str], found: Sequence[Any]) -> list[Answer]:
    did = {str(row["id"]): Answer(row["did"], Status(row["status"])) for row in found}
    return [did.get(id.lower(), _NONE) for id in ids]


def _keys(ids: Sequence[str]) -> list[str | None]:
    return [rows.id_key(id) for id in ids]


def _without_repeats(ids: Sequence[str]) -> Iterator[list[str]]:
    """The ids in order, split before each repeated id, since a statement writes to a row once."""
    part: list[str] = []
    for id in ids:
        if id in part:
            yield part
            part = []
        part.append(id)
    if part:
        yield part


# Housekeeping


async def housekeep(session: Session, retention: Retention, limit: int) -> HousekeepingResult:
    expired = await expire(session, limit)
    failed, unknown = await fail_unknown(session, max(limit - len(expired), 1))
    removed, over_at = await _apply_retention(session, retention, max(limit - len(expired) - failed, 1))
    await forget_keys(session, limit)
    await session.rows("forget_silent", silent=constants.SILENT)
    expires_at = (await session.row("next_expiry"))["expires_at"]
    moments = [*over_at, *unknown.values(), *([] if expires_at is None else [expires_at])]
    next_in = timedelta(milliseconds=max(min(moments) - await _wall(session), 0)) if moments else None
    return HousekeepingResult(tuple(expired), removed, next_in, failed, frozenset(unknown))


async def expire(session: Session, limit: int) -> list[str]:
    """Expire waiting jobs whose time has passed, and return their ids."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    row = await session.row("expire", with_deliveries=False, **what)
    expired = [str(id) for id in row["ids"] or ()]
    if row["put_off"]:
        expired += await expire_with_deliveries(session, limit)
    if expired:
        session.wake(Topic.ENDED)
    return expired


async def expire_with_deliveries(session: Session, limit: int) -> list[str]:
    """The same, also for jobs with webhooks."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    async with with_deliveries(session) as ended:
        row = await session.row("expire", with_deliveries=True, **what)
        ended += [str(id) for id in row["ids"] or ()]
    return ended


async def fail_unknown(session: Session, limit: int) -> tuple[int, dict[str, int]]:
    """Fail parked jobs of types that no live worker has known for `NO_HANDLER_GRACE`. Returns how many, and when the next
    job fails of each type that no live worker knows."""
    parked = [ParkedType(*row) for row in await session.rows("parked_types")]
    if not parked:
        return 0, {}
    wall = await _wall(session)
    judged = judge(parked, await registry.workers(session), wall)
    for one in judged.changed:
        await session.rows("note_unknown", type=one.type, queue=one.queue, since=one.unknown_since)
    for one in judged.forgotten:
        await session.rows("forget_parked", type=one.type, queue=one.queue)
    if not judged.unknown:
        return 0, {}
    types, queues = [type for type, _ in judged.unknown], [queue for _, queue in judged.unknown]
    firsts = await session.rows("parked_firsts", types=types, queues=queues, ranks=len(Priority))
    failed, next_at = 0, dict[str, int]()
    for type, queue, due_at in firsts:
        at = fails_at(judged.unknown[type, queue], due_at)
        next_at[type] = min(at, next_at.get(type, at))
        if at <= wall and failed < limit:
            which = {"type": type, "queue": queue, "ranks": len(Priority), "until": failing_until(wall)}
            failed += await _fail_unknown(session, {**which, "limit": limit - failed})
    return failed, next_at


async def _fail_unknown(session: Session, which: dict[str, Any]) -> int:
    async with with_deliveries(session) as ended:
        verdict = {"failed": UNKNOWN_TYPE.status.value, "error": UNKNOWN_TYPE.error}
        ended += [str(id) for (id,) in await session.rows("fail_unknown", **which, **verdict)]
    if ended:
        session.wake(Topic.ENDED)
    return len(ended)


async def _apply_retention(session: Session, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete ended jobs beyond their retention; returns how many, and when more are due."""
    limits, removed = RetentionLimits(retention, await session.rows("retentions")), 0
    for queue, status, keep in limits.of(await session.rows("ended_kinds")):
        removed += await _remove_kind(session, queue, status, keep, limit - removed)
        if removed >= limit:
            return removed, [OVERDUE]
    return removed, limits.over_at(await session.rows("ended_kinds"))


async def _remove_kind(session: Session, queue: str, status: Status, keep: Keep, limit: int) -> int:
    removed = 0
    if keep.age is not None:
        removed += await remove_ended(session, queue, status, span_ms(keep.age), limit)
    if keep.count is not None and removed < limit:
        removed += await remove_beyond(session, queue, status, keep.count, limit - removed)
    return removed


async def _wall(session: Session) -> int:
    return int((await session.row("now"))["us"]) // 1000


# Webhook deliveries, recorded in the transaction that ends their job


@asynccontextmanager
async def with_deliveries(session: Session) -> AsyncIterator[list[str]]:
    """A transaction that ends jobs with webhooks. The block puts the ids of the jobs that it ended into the list; their
    deliveries are recorded in the same transaction."""
    ended: list[str] = []
    async with session.transaction():
        yield ended
        if ended:
            await _record_deliveries(session, ended)
        crash.at("batch.applied")


async def _record_deliveries(session: Session, ids: Iterable[str]) -> None:
    found = await session.rows("ended", ids=list(ids))
    requests = [request for row in found if (request := delivery(columns.ended_job(row, str(row["id"])))) is not None]
    await store(session, requests, frozenset())
    session.unplaced = True
