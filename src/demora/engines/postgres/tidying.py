"""The housekeeping: what expired is cancelled, and what need not be kept goes, a small piece at a time."""

from datetime import timedelta
from typing import Any

from ...core.retention import Keep, Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...core.verdict import EXPIRED
from ...store import Tidied, Topic
from . import hooks, rows, wishes
from .connections import Session

SILENT = 86_400_000  # milliseconds after which a worker that said nothing is forgotten


async def tidy(session: Session, retention: Retention, limit: int, topics: set[Topic]) -> Tidied:
    expired = await expire(session, limit, topics)
    removed, waits = await _remove(session, retention, max(limit - expired, 1))
    await wishes.forget_keys(session, limit)
    await session.rows("forget_silent", silent=SILENT)
    expires_at = (await session.row("next_expiry"))["expires_at"]
    if expires_at is not None:
        waits.append(expires_at - await _wall(session))
    return Tidied(expired, removed, timedelta(milliseconds=max(min(waits), 0)) if waits else None)


async def expire(session: Session, limit: int, topics: set[Topic]) -> int:
    """Give waiting jobs whose time has passed the verdict that they expired."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    row = await session.row("expire", telling=False, **what)
    expired = int(row["expired"])
    if row["put_off"]:
        expired += await expire_telling(session, limit, topics)
    if expired:
        topics.add(Topic.ENDED)
    return expired


async def expire_telling(session: Session, limit: int, topics: set[Topic]) -> int:
    """The same, also for jobs of whose end somebody is to hear."""
    what: dict[str, Any] = {"cancelled": EXPIRED.status.value, "expired": EXPIRED.error, "limit": limit}
    async with hooks.telling(session, topics) as ended:
        row = await session.row("expire", telling=True, **what)
        ended += [str(id) for id in row["ids"] or ()]
    return len(ended)


async def _remove(session: Session, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete what need not be kept; answers with how much, and in how many milliseconds there is more to delete."""
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
        removed += await wishes.remove_ended(session, queue, status, span_ms(keep.age), limit)
    if keep.count is not None and removed < limit:
        removed += await wishes.remove_beyond(session, queue, status, keep.count, limit - removed)
    return removed


async def _wall(session: Session) -> int:
    return int((await session.row("now"))["us"]) // 1000
