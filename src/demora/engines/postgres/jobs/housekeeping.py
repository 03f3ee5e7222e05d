"""Housekeeping on PostgreSQL: it deletes old jobs, expires waiting ones, and fails those of types that no worker knows."""

from datetime import timedelta
from typing import Any

from ....core.job import Priority
from ....core.retention import Keep, Retention
from ....core.spans import span_ms
from ....core.states import Status
from ....core.verdict import EXPIRED, UNKNOWN_TYPE
from ....core.workers import ParkedType, failing_until, fails_at, judge
from ....store.jobs import HousekeepingResult, Topic
from ...sql import constants
from ...sql.retention import OVERDUE, RetentionLimits
from .. import registry
from ..connection.connections import Session
from .deliveries import with_deliveries


async def purge(session: Session, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    names = [queue] if queue is not None else [row["name"] for row in await session.rows("queue_names")]
    removed = 0
    for name in names:
        if removed < limit:
            removed += await remove_ended(session, name, status, older_than, limit - removed)
    await forget_keys(session, limit)
    return removed


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


async def _wall(session: Session) -> int:
    return int((await session.row("now"))["us"]) // 1000
