"""Adding jobs: in one statement if no job has an idempotency key or is unique, else in one transaction."""

import contextlib
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Literal

import asyncpg
import msgspec

from ...core.job import Lane, NewJob
from ...core.spans import ZERO, from_ms, span_ms, to_ms
from ...core.states import Status
from ...store.jobs import Added, Topic
from ...system import crash
from . import rows
from .connections import Session

_LANES = {
    "queued": Status.QUEUED.value,
    "scheduled": Lane.SCHEDULED.value,
    "realtime": Lane.REALTIME.value,
}


def is_plain(job: NewJob) -> bool:
    """Whether the job has neither an idempotency key nor a unique key."""
    return job.key is None and job.unique is None


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
    added = await store(session, jobs, named)
    if len(added) == len(jobs):
        return [added[job.id] for job in jobs]
    missing = [job for job in jobs if job.id not in added and job.id not in known]
    before = await _taken(session, missing) if missing else {}
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
    in_turn = iter(stored)
    first_of = {job.id: answer for job, answer in zip(reversed(fresh), reversed(stored), strict=True)}
    return [next(in_turn) if answer is None else _as_stored(answer, first_of) for answer in answers]


def _as_stored(replay: Added, stored: Mapping[str, Added]) -> Added:
    """A replay of a job of the same call gets the answer of that job, which may name a unique job that waited."""
    first = stored.get(replay.id)
    return replay if first is None else Added(first.id, first.created_at, first.scheduled_at, replayed=True)


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
    differs = request_hash != key.request_hash
    return Added(first.id, first.created_at, first.scheduled_at, replayed=not differs, conflict=differs)


def _new(now: datetime, job: NewJob) -> Added:
    """The answer for a job that is stored now. The statement computes the same due time."""
    due_at = now if job.at is None else max(from_ms(to_ms(job.at)), now)
    if job.delay is not None:
        due_at = from_ms(to_ms(now) + span_ms(max(job.delay, ZERO)))
    return Added(job.id, now, due_at)


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
    unnamed = list({job.queue for job in jobs} - named)
    ready, expiry, wall, added = await session.row("add" + how, unnamed=unnamed, **_LANES, **rows.new_jobs(jobs))
    if ready:
        session.wake(Topic.READY)
    if expiry:
        session.wake(Topic.EXPIRY)
    ids = None if added is None else {str(id) for id in added}
    now = from_ms(wall)
    # Of equal ids the first counts.
    return {job.id: _new(now, job) for job in reversed(jobs) if ids is None or job.id in ids}


def _is_simple(job: NewJob) -> bool:
    """Whether the job is due at once, never expires and is not unique."""
    return all(asked is None for asked in (job.at, job.delay, job.expires_at, job.expires_in, job.unique))


async def _store_simple(session: Session, job: NewJob, how: str) -> dict[str, Added]:
    """`store` for the most usual job: its statement takes half the time."""
    added = await session.row("add_one" + how, **_LANES, **rows.new_job(job))
    if added is None:
        return {}
    session.wake(Topic.READY)
    return {job.id: _new(from_ms(added["created_at"]), job)}


async def _taken(session: Session, jobs: Sequence[NewJob]) -> dict[str, Added]:
    """The jobs that exist already, by id."""
    found = await session.rows("ids_taken", ids=[job.id for job in jobs])
    return {str(id): Added(str(id), from_ms(created_at), from_ms(at)) for id, created_at, at in found}
