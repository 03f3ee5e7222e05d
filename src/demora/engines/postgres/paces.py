"""Paces on PostgreSQL: setting and reading them, and releasing the jobs that they allow.

One statement reads all paces, and another one releases the jobs of each pace that allows some. The second moves the jobs and
the state of the pace under the lock of the pace, and only if the state is unchanged.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from ...core.job import PARKED, Job, Lane, Priority, QueueOrder
from ...core.pace import (
    EVERY_QUEUE,
    USUAL_PACE,
    Pace,
    PaceRequest,
    PaceState,
    Plan,
    Release,
    begin,
    left_out_with,
    look_at,
    plan,
)
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...core.statistics import WINDOW_MS
from ...store.audit import PaceFacts
from ...store.jobs import LOCKED_RETRY, Queue, Topic
from ...store.paces import HOUR, RECENT, Outlook, PaceChange, Pacing, Released
from ..sql.paces import A_FEW, facts_of, pace_of, state_of, text
from ..sql.statistics import RELEASES
from . import diagnostics, registry, rows
from .connection.connections import Session
from .database import Database
from .jobs.housekeeping import expire

EXPIRED_AT_ONCE = 200
MARGIN = 50  # rows to read beyond those to release, since other calls may be changing the first ones
_USUAL = rows.offsets(QueueOrder())


class PostgresPaces:
    """The paces of queues."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._database.write_once(lambda session: set_pace(session, queue, request, by, usual, setting))

    async def follow(self, queue: str, *, by: str) -> bool:
        return await self._database.write_once(lambda session: follow(session, queue, by))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._database.write(lambda session: release(session, queues, wake=wake))

    async def all(self) -> list[Pacing]:
        return await self._database.read(pacings)

    async def of(self, queue: str) -> Pacing | None:
        return await self._database.read(lambda session: pacing_of(session, queue))

    async def changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._database.read(lambda session: pace_changes(session, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._database.read(lambda session: outlook(session, id))

    async def outlooks(self, ids: Sequence[str], *, most_ahead: int) -> list[Outlook]:
        return await self._database.read(lambda session: outlooks(session, ids, most_ahead))


async def set_pace(
    session: Session,
    queue: str,
    request: PaceRequest | None,
    by: str,
    usual: Pace,
    setting: str | None,
) -> Pacing | None:
    """Set a pace, in a transaction of the caller."""
    await _lock(session, queue)
    if setting is not None:
        before = await session.row("set_by_settings", queue=queue)
        if before is not None and before["setting"] == setting:
            return await pacing_of(session, queue)
    now = await pacing_of(session, queue)
    pace = None if request is None else request.over(usual if now is None else now.pace)
    await _set(session, queue, pace, by, setting)
    await _leave_out(session, left_out_with(queue), by)
    after = await pacing_of(session, queue)  # under the lock, else it may be what another call has set since
    session.topics |= {Topic.READY, Topic.PACE}
    return after


async def follow(session: Session, queue: str, by: str) -> bool:
    """Have a queue follow `*` again, in a transaction of the caller."""
    await session.rows("queue", name=queue)  # as `_lock`; a queue without a row has no pace
    changed = await session.rows("follow_again", queue=queue, by=rows.text(by))
    if changed:
        session.topics |= {Topic.READY, Topic.PACE}
    return bool(changed)


async def _lock(session: Session, queue: str) -> None:
    """Let no other call set the pace of this queue until the transaction ends."""
    if queue == EVERY_QUEUE:
        await session.rows("only_one", what="the pace of all queues")
    else:
        await session.rows("name_queue", name=queue)
        await session.rows("queue", name=queue)


async def _leave_out(session: Session, queues: Iterable[str], by: str) -> None:
    """Give these queues no pace, unless they have one."""
    for queue in queues:
        await _lock(session, queue)
        if await session.row("pace_state", queue=queue) is None:
            await _set(session, queue, None, by, None)


async def _set(session: Session, queue: str, pace: Pace | None, by: str, setting: str | None) -> None:
    row = await session.row("pace_state", queue=queue)
    wall = (await session.row("now"))["us"] // 1000
    await session.rows("touch_queue", name=queue)
    await session.rows(
        "set_pace",
        queue=queue,
        pace=pace and text(pace),
        lanes=pace and [number for lane in pace.governs.lanes for number in (lane.value, lane + PARKED)],
        protects=pace and list(pace.protect if queue == EVERY_QUEUE else pace.protected(queue)),
        reach=pace and max(pace.rate(quiet=quiet).reach for quiet in (True, False)),
        state=text(begin(wall)) if row is None else row["state"],
        by=rows.text(by),
        setting=setting,
    )


async def pacings(session: Session) -> list[Pacing]:
    return [_pacing(row) for row in await _rows(session, None)]


async def pacing_of(session: Session, queue: str) -> Pacing | None:
    found = await _rows(session, [queue])
    return _pacing(found[0]) if found else None


async def pace_changes(session: Session, queue: str, limit: int) -> list[PaceChange]:
    found = await session.rows("pace_changes", queue=queue, limit=limit)
    return [PaceChange(name, from_ms(at), by, pace and pace_of(pace), follows) for name, at, by, pace, follows in found]


async def facts(session: Session) -> list[PaceFacts]:
    """Every change of a pace, in order, for a checker."""
    return [facts_of(*row) for row in await session.rows("pace_facts")]


async def _rows(session: Session, queues: Sequence[str] | None) -> list[rows.Row]:
    return await session.rows("pacings", queues=queues, realtime=Lane.REALTIME.value, hour=span_ms(HOUR))


def _pacing(row: rows.Row) -> Pacing:
    queue, pace, state, set_at, set_by, wall, held, coming, soon, first, quiet, inherited = row
    now = begin(wall) if state is None else state_of(state)
    counts = (held, coming, soon, None if first is None else from_ms(first))
    return Pacing(queue, pace_of(pace), now, from_ms(set_at), set_by, from_ms(wall), *counts, quiet, inherited)


# Releases


async def release(session: Session, queues: Sequence[str] | None, *, wake: bool) -> Released:
    """Release what the paces of these queues allow, except jobs that other processes release at the same time."""
    jobs: list[Release] = []
    waits: list[int] = []
    found = await _look(session, queues, A_FEW)
    paced = bool(found) or await session.row("every_pace") is not None
    for row in found:
        released, next_at = await _release(session, row)
        jobs += released
        if next_at is not None:
            waits.append(max(next_at * 1000 - row["us"], 0))
    if jobs and wake:
        session.wake(Topic.READY)
    return Released(jobs, timedelta(microseconds=min(waits)) if waits else None, paced=paced)


async def _look(session: Session, queues: Sequence[str] | None, width: int | None) -> list[rows.Row]:
    """Read each queue that has a pace and is not paused, with its first `width` held jobs, or with all it reaches."""
    asked = None if queues is None else list(queues)
    return await session.rows("held", queues=asked, realtime=Lane.REALTIME.value, ranks=len(Priority), width=width)


async def _release(session: Session, row: rows.Row) -> tuple[list[Release], int | None]:
    """Release what one pace allows now. Returns the jobs, none if another process was faster, and when to look again."""
    wall, state = row["wall"], _state(row)
    first = min([*row["dues"][:1], *_some(row["coming"])], default=None)
    if row["expired"]:  # expired jobs come first, and must not be released
        await expire(session, EXPIRED_AT_ONCE)
    if first is None or look_at(state, wall, first) > wall:
        return [], None if first is None else look_at(state, wall, first)
    row, planned = await _plan(session, row)
    moved = await _move(session, row, planned)
    left = [*row["dues"][len(planned.release_times) :][:1], *_some(row["coming"])]
    if len(moved) < len(planned.release_times):  # other transactions have locked the pace or some of its jobs
        return moved, wall + span_ms(LOCKED_RETRY)
    return moved, look_at(planned.state, wall, min(left)) if left else None


async def _plan(session: Session, row: rows.Row) -> tuple[rows.Row, Plan]:
    """Plan what a pace allows now. If it allows all jobs that were read, read more and plan again."""
    planned = _planned(row)
    if len(planned.release_times) < A_FEW:
        return row, planned
    for wider in await _look(session, [row["queue"]], None):
        return wider, _planned(wider)
    return row, planned


def _planned(row: rows.Row) -> Plan:
    rate = pace_of(row["pace"]).rate(quiet=row["quiet"])
    return plan(rate, _state(row), row["wall"], row["dues"][: rate.reach])


def _state(row: rows.Row) -> PaceState:
    """How far the pace of a queue has got; one that follows `*` may have no row of its own yet."""
    return begin(row["wall"]) if row["state"] is None else state_of(row["state"])


async def _move(session: Session, row: rows.Row, planned: Plan) -> list[Release]:
    before = row["state"]
    if before is None:
        before = text(_state(row))
        await session.rows("follow", queue=row["queue"], state=before, wall=row["wall"])
    moved = await session.rows(
        "release_held",
        queue=row["queue"],
        pace=row["pace"],
        inherited=row["inherited"],
        before=before,
        states=[*map(text, planned.states[:-1]), text(planned.state)],
        wall=row["wall"],
        lanes=row["lanes"],
        ranks=len(Priority),
        offsets=row["offsets"] or _USUAL,
        release_times=list(planned.release_times),
        window=len(planned.release_times) + MARGIN if planned.release_times else 0,
        released=Lane.RELEASED.value,
        process=RELEASES,
        window_ms=WINDOW_MS,
    )
    return [Release(str(id), row["queue"], Priority(rank), from_ms(release_at)) for id, rank, release_at in moved]


def _some(moment: int | None) -> list[int]:
    return [] if moment is None else [moment]


async def outlook(session: Session, id: str) -> Outlook | None:
    """What decides when a job runs, as of one moment."""
    async with session.transaction(isolation="repeatable_read", readonly=True):
        job = await rows.get(session, id)
        found = [] if job is None else await _outlooks(session, [job], None)
    return found[0] if found else None


async def outlooks(session: Session, ids: Sequence[str], most_ahead: int) -> list[Outlook]:
    async with session.transaction(isolation="repeatable_read", readonly=True):
        return await _outlooks(session, await rows.listed(session, ids), most_ahead)


async def _outlooks(session: Session, jobs: Sequence[Job], most: int | None) -> list[Outlook]:
    """Make the outlooks of jobs in one transaction. What several jobs share is read once."""
    wall = (await session.row("now"))["us"] // 1000
    queues = await _surroundings(session, sorted({job.queue for job in jobs}), wall)
    waits = {job.id for job in jobs if job.status.waiting and to_ms(job.due_at) <= wall}
    running = await diagnostics.running(session, wall) if waits else []
    places = [bound for job in jobs if job.id in waits for bound in _bounds(job, *queues[job.queue][:2])]
    ahead = await _ahead(session, places, wall, most) if places else {}
    workers, found = await registry.workers(session), list[Outlook]()
    for job in jobs:
        queue, pacing, recent = queues[job.queue]
        theirs = running if job.id in waits else []
        before = ahead.get(job.id, 0)
        found.append(Outlook(job, from_ms(wall), before, recent, queue.pause, pacing, workers, theirs, most))
    return found


async def _surroundings(session: Session, names: Sequence[str], wall: int) -> dict[str, tuple[Queue, Pacing | None, int]]:
    """Queues, the states of their paces, and how many of their jobs were completed lately."""
    since, completed = wall - span_ms(RECENT), Status.COMPLETED.value
    found = await session.rows("surroundings", queues=names, completed=completed, since=since)
    paced = {row["queue"]: _pacing(row) for row in await _rows(session, names)} if names else {}
    return {row["name"]: (rows.queue(row[:-1]), paced.get(row["name"]), row["recent"]) for row in found}


class _Bound(NamedTuple):
    """Where a job stands in one lane and rank of its queue: jobs that are due earlier go before it."""

    id: str
    queue: str
    lane: Lane
    rank: Priority
    due: int


def _bounds(job: Job, queue: Queue, pacing: Pacing | None) -> Iterator[_Bound]:
    """The lanes and ranks of the jobs in the same situation as this one: ready, or held by the pace."""
    governed = () if pacing is None else pacing.pace.governs.lanes
    place = to_ms(job.due_at) + queue.order.offset(job.lane, job.priority)
    for lane in Lane:
        if (lane in governed) == (job.lane in governed):
            for rank in Priority:
                yield _Bound(job.id, job.queue, lane, rank, place - queue.order.offset(lane, rank))


async def _ahead(session: Session, bounds: Sequence[_Bound], wall: int, most: int | None) -> dict[str, int]:
    """How many jobs, up to `most`, go before each job, in one statement."""
    ids = list(dict.fromkeys(bound.id for bound in bounds))
    numbers = {id: number for number, id in enumerate(ids)}
    found = await session.rows(
        "count_before",
        numbers=[numbers[bound.id] for bound in bounds],
        ids=[rows.id_key(bound.id) for bound in bounds],
        queues=[bound.queue for bound in bounds],
        lanes=[bound.lane.value for bound in bounds],
        ranks=[bound.rank.value for bound in bounds],
        dues=[bound.due for bound in bounds],
        wall=wall,
        most=most,
    )
    return {ids[number]: int(ahead) if most is None else min(int(ahead), most) for number, ahead in found}
