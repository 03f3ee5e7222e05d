"""How the jobs stand, for those who look after them."""

from datetime import timedelta

from ...core.spans import from_ms
from ...occupancy import Running
from ...survey import Pulse, Survey, Waiting
from . import views
from .connections import Session
from .rows import Row


async def survey(session: Session) -> Survey:
    async with session.transaction(isolation="repeatable_read"):
        wall = await _freeze(session)
        lapsed = await session.row("survey_lapsed", wall=wall)
        ahead = await session.row("survey_ahead", wall=wall)
        return Survey(
            now=from_ms(wall),
            waiting=[_waiting(row) for row in await session.rows("survey_waiting", wall=wall)],
            lapsed=lapsed["lapsed"],
            lapsed_for=timedelta(milliseconds=wall - lapsed["first"] if lapsed["lapsed"] else 0),
            ahead=ahead["ahead"],
            ahead_waiting=ahead["waiting"],
            ahead_by=timedelta(milliseconds=ahead["latest"] - wall if ahead["ahead"] else 0),
            running=await running(session, wall),
        )


async def running(session: Session, wall: int) -> list[Running]:
    """The jobs whose leases hold at this time, by worker and type."""
    return [
        Running(worker_id, type, jobs, str(longest), from_ms(since), from_ms(latest))
        for worker_id, type, jobs, longest, since, latest in await session.rows("running", wall=wall)
    ]


def _waiting(row: Row) -> Waiting:
    queue, type, ready, delayed, oldest = row
    return Waiting(queue, type, ready, delayed, from_ms(oldest))


async def pulse(session: Session, mark: int | None) -> Pulse:
    async with session.transaction(isolation="repeatable_read"):
        wall = await _freeze(session)
        return Pulse(
            now=from_ms(wall),
            mark=(await session.row("pulse_mark"))["mark"],
            queues=await views.queues(session),
            added={} if mark is None else {row[0]: row[1] for row in await session.rows("pulse_added", mark=mark)},
            running={row[0]: row[1] for row in await session.rows("pulse_running")},
            due_since={row[0]: from_ms(row[1]) for row in await session.rows("pulse_due", wall=wall)},
        )


async def _freeze(session: Session) -> int:
    """One moment for all that is asked on this session; in milliseconds."""
    session.wall_us = int((await session.row("now"))["us"])
    return session.wall_us // 1000
