"""The paces of queues on PostgreSQL: setting them, and reading them with the jobs that they hold."""

from ...core.job import Lane
from ...core.pace import Pace, begin
from ...core.pace_request import PaceRequest
from ...core.spans import from_ms, span_ms
from ...store.audit import PaceFacts
from ...store.jobs import Topic
from ...store.paces import HOUR, PaceChange, Pacing
from ..stored_paces import facts_of, pace_of, state_of, text
from . import rows
from .connections import Session


async def set_pace(
    session: Session,
    queue: str,
    request: PaceRequest | None,
    by: str,
    usual: Pace,
    setting: str | None,
) -> Pacing | None:
    async with session.transaction():
        await session.rows("name_queue", name=queue)
        await session.rows("queue", name=queue)  # locks it
        if setting is not None:
            before = await session.row("set_by_settings", queue=queue)
            if before is not None and before["setting"] == setting:
                return await pacing(session, queue)
        await _set(session, queue, request, by, usual, setting)
    session.topics |= {Topic.READY, Topic.PACE}
    return await pacing(session, queue)


async def _set(session: Session, queue: str, request: PaceRequest | None, by: str, usual: Pace, setting: str | None) -> None:
    row = await session.row("lock_pace", queue=queue)
    now = pace_of(row["pace"]) if row is not None and row["pace"] is not None else usual
    pace = None if request is None else request.over(now)
    wall = (await session.row("now"))["us"] // 1000
    await session.rows("touch_queue", name=queue)
    await session.rows(
        "set_pace",
        queue=queue,
        pace=pace and text(pace),
        lanes=pace and [lane.value for lane in pace.governs.lanes],
        protects=pace and list(pace.protected(queue)),
        reach=pace and max(pace.rate(quiet=quiet).reach for quiet in (True, False)),
        state=text(begin(wall)) if row is None else row["state"],
        by=rows.text(by),
        setting=setting,
    )


async def pacings(session: Session) -> list[Pacing]:
    return [_pacing(row) for row in await _rows(session, None)]


async def pacing(session: Session, queue: str) -> Pacing | None:
    found = await _rows(session, queue)
    return _pacing(found[0]) if found else None


async def changes(session: Session, queue: str, limit: int) -> list[PaceChange]:
    found = await session.rows("pace_changes", queue=queue, limit=limit)
    return [PaceChange(name, from_ms(at), by, None if pace is None else pace_of(pace)) for name, at, by, pace in found]


async def facts(session: Session) -> list[PaceFacts]:
    """Every change of a pace, in order, for a checker."""
    return [facts_of(queue, at, pace) for queue, at, pace in await session.rows("pace_facts")]


async def _rows(session: Session, queue: str | None) -> list[rows.Row]:
    return await session.rows("pacings", queue=queue, realtime=Lane.REALTIME.value, hour=span_ms(HOUR))


def _pacing(row: rows.Row) -> Pacing:
    queue, pace, state, set_at, set_by, wall, held, coming, soon, first, quiet = row
    counts = (held, coming, soon, None if first is None else from_ms(first))
    return Pacing(queue, pace_of(pace), state_of(state), from_ms(set_at), set_by, from_ms(wall), *counts, quiet=quiet)
