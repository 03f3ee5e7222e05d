"""Changes to jobs on request, on PostgreSQL. Each is a guarded write of many jobs at once."""

import json
from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from typing import Any

from ....core.action import RESUMED_TYPES
from ....core.job import revision
from ....core.spans import span_ms, to_ms
from ....core.states import RETRYABLE, Status
from ....core.verdict import CANCELLED_WAITING, RESCHEDULED_LANE, RETRIED, RETRIED_LANE, waiting_after
from ....store.jobs import Answer, Change, Topic
from .. import rows
from ..connection.connections import Session
from .deliveries import with_deliveries

_NONE = Answer(False, None)


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
