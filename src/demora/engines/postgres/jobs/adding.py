"""Adding jobs on PostgreSQL: in one statement if none has an idempotency key or is unique, else in one transaction."""

import contextlib
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Literal

import asyncpg
import msgspec

from ....core.job import Lane, NewJob, due_ms
from ....core.spans import from_ms, span_ms, to_ms
from ....core.states import Status
from ....store.jobs import Added, Topic
from ....system import crash
from ...sql.adding import replay, with_stored
from ...sql.schedules import ScheduledJob
from .. import rows
from ..connection.connections import Session

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
    earlier = await _take_keys(session, jobs)
    answers: list[Added | None] = []
    taken: dict[tuple[str, str], tuple[bytes, Added]] = {}
    for job in jobs:
        answers.append(_known(session, job, earlier, taken))
    if any(answer is not None and answer.conflict for answer in answers):
        return [answer or _new(_now(session), job) for job, answer in zip(jobs, answers, strict=True)]
    fresh = [job for job, answer in zip(jobs, answers, strict=True) if answer is None]
    stored = await _store_fresh(session, fresh, named)
    return with_stored(answers, fresh, stored)


async def _take_keys(session: Session, jobs: Sequence[NewJob]) -> dict[tuple[str, str], Any]:
    """Take the keys of these jobs, and return those that are taken already."""
    wanted = {(job.key.namespace, job.key.key): job for job in reversed(jobs) if job.key is not None}
    if not wanted:
        return {}
    keyed = [(job.key, job) for job in wanted.values() if job.key is not None]
    got = await session.rows(
        "take_keys",
        scopes=[key.namespace for key, _ in keyed],
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
    found = await session.rows("keys_taken", scopes=[scope for scope, _ in others], keys=[key for _, key in others])
    return {(row["scope"], row["key"]): row for row in found}


def _known(
    session: Session,
    job: NewJob,
    earlier: dict[tuple[str, str], Any],
    taken: dict[tuple[str, str], tuple[bytes, Added]],
) -> Added | None:
    """The answer for a key that was used before, in this call or an earlier one; None for a new key."""
    key = job.key
    if key is None:
        return None
    if (key.namespace, key.key) in taken:
        request_hash, first = taken[key.namespace, key.key]
    elif (key.namespace, key.key) in earlier:
        row = earlier[key.namespace, key.key]
        request_hash = row["request_hash"]
        first = Added(str(row["job_id"]), from_ms(row["created_at"]), from_ms(row["scheduled_at"]))
    else:
        taken[key.namespace, key.key] = key.request_hash, _new(_now(session), job)
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
        await session.rows("rekey", scope=job.key.namespace, key=job.key.key, id=id)
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
