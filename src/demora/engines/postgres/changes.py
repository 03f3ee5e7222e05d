"""Changes of single jobs on request, the purge of ended ones, and the housekeeping. Guarded writes, many at once."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from ...core.job import Lane
from ...core.retention import Keep, Retention
from ...core.spans import span_ms, to_ms
from ...core.states import RETRYABLE, Status
from ...core.verdict import EXPIRED
from ...store.jobs import Answer, Change, HousekeepingResult, Topic
from . import rows, webhooks
from .connections import Session

SILENT = 86_400_000  # milliseconds without a heartbeat after which a worker is forgotten
_NONE = Answer(False, None)


async def cancel(session: Session, ids: Sequence[str]) -> list[Answer]:
    known = await _known(session, "cancelled", ids, cancelled=Status.CANCELLED.value)
    what = {"cancelled": Status.CANCELLED.value, "error": "cancelled before it started"}
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        found = await session.rows("cancel", ids=_keys(part), with_deliveries=False, **what)
        if put_off := [str(row["id"]) for row in found if row["put_off"]]:
            async with webhooks.with_deliveries(session) as ended:
                found = [*found, *await session.rows("cancel", ids=put_off, with_deliveries=True, **what)]
                ended += [str(row["id"]) for row in found if row["ended"]]
        if known or any(row["ended"] for row in found):
            session.wake(Topic.ENDED)
        answers += _answers(part, found, known)
    return answers


async def retry(session: Session, ids: Sequence[str]) -> list[Answer]:
    known = await _known(session, "retried", ids)
    what = {"queued": Status.QUEUED.value, "lane": Lane.RETRY.value, "from": sorted(RETRYABLE)}
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        found = await session.rows("retry", ids=_keys(part), **what)
        if known or any(row["did"] for row in found):
            session.wake(Topic.READY)
        answers += _answers(part, found, known)
    return answers


async def change(session: Session, id: str, change: Change) -> Answer:
    row = await session.row(
        "change",
        id=rows.id_key(id),
        rank=None if change.priority is None else change.priority.value,
        tags=None if change.tags is None else json.dumps(change.tags),
        at=None if change.at is None else to_ms(change.at),
        delay=None if change.delay is None else span_ms(change.delay),
        lane=Lane.SCHEDULED.value,
    )
    if row is None:
        return _NONE
    if row["ready"]:
        session.wake(Topic.READY)
    return Answer(row["did"], Status(row["status"]))


async def remove(session: Session, ids: Sequence[str]) -> list[Answer]:
    answers: list[Answer] = []
    for part in _without_repeats(ids):
        answers += _answers(part, await session.rows("remove", ids=_keys(part)), {})
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
    what: dict[str, Any] = {"queue": queue, "status": status.value, "older_than": older_than, "limit": limit}
    return int((await session.row("purge", **what))["removed"])


async def remove_beyond(session: Session, queue: str, status: Status, newest: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status, but none of the `newest` so many."""
    what: dict[str, Any] = {"queue": queue, "status": status.value, "newest": newest, "limit": limit}
    return int((await session.row("purge_beyond", **what))["removed"])


async def forget_keys(session: Session, limit: int) -> None:
    """Delete up to `limit` idempotency keys that expired."""
    await session.rows("purge_keys", limit=limit)


async def _known(session: Session, name: str, ids: Sequence[str], **what: Any) -> dict[str, Answer]:
    """The answers of the first try, if this is a second one (`session.again`)."""
    if not session.again:
        return {}
    found = await session.rows(name, ids=_keys(ids), **what)
    return {str(row["id"]): Answer(True, Status(row["status"])) for row in found if row["did"]}


def _answers(ids: Sequence[str], found: Sequence[Any], known: dict[str, Answer]) -> list[Answer]:
    did = {str(row["id"]): Answer(row["did"], Status(row["status"])) for row in found}
    return [known.get(id.lower()) or did.get(id.lower(), _NONE) for id in ids]


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


async def housekeep(session: Session, retention: Retention, limit: int) -> HousekeepingResult:
    expired = await expire(session, limit)
    removed, waits = await _remove(session, retention, max(limit - expired, 1))
    await forget_keys(session, limit)
    await session.rows("forget_silent", silent=SILENT)
    expires_at = (await session.row("next_expiry"))["expires_at"]
    if expires_at is not None:
        waits.append(expires_at - await _wall(session))
    return HousekeepingResult(expired, removed, timedelta(milliseconds=max(min(waits), 0)) if waits else None)


async def expire(session: Session, limit: int) -> int:
    """Expire waiting jobs whose time has passed, and return how many."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    row = await session.row("expire", with_deliveries=False, **what)
    expired = int(row["expired"])
    if row["put_off"]:
        expired += await expire_with_deliveries(session, limit)
    if expired:
        session.wake(Topic.ENDED)
    return expired


async def expire_with_deliveries(session: Session, limit: int) -> int:
    """The same, also for jobs with webhooks."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    async with webhooks.with_deliveries(session) as ended:
        row = await session.row("expire", with_deliveries=True, **what)
        ended += [str(id) for id in row["ids"] or ()]
    return len(ended)


async def _remove(session: Session, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete ended jobs beyond their retention; returns how many, and the milliseconds until more are due."""
    own = {name: rows.retention(text).over(retention) for name, text in await session.rows("retentions")}
    removed, waits = 0, list[int]()
    for queue, number, _ in await session.rows("ended_kinds"):
        keep = own.get(queue, retention).of(Status(number))
        if keep is None or keep == Keep():
            continue
        removed += await _remove_kind(session, queue, Status(number), keep, limit - removed)
        if removed >= limit:
            return removed, [0]
    for queue, number, oldest in await session.rows("ended_kinds"):
        keep = own.get(queue, retention).of(Status(number))
        if keep is not None and keep.age is not None:
            waits.append(oldest + span_ms(keep.age) - await _wall(session))
    return removed, waits


async def _remove_kind(session: Session, queue: str, status: Status, keep: Keep, limit: int) -> int:
    removed = 0
    if keep.age is not None:
        removed += await remove_ended(session, queue, status, span_ms(keep.age), limit)
    if keep.count is not None and removed < limit:
        removed += await remove_beyond(session, queue, status, keep.count, limit - removed)
    return removed


async def _wall(session: Session) -> int:
    return int((await session.row("now"))["us"]) // 1000
