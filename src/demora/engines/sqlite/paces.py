"""Paces on SQLite: setting and reading them, and releasing the jobs that they allow in the transaction of a claim."""

import heapq
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import NamedTuple

import msgspec

from ...core.job import PARKED, Job, Lane, Priority, QueueOrder, lane_of
from ...core.pace import (
    EVERY_QUEUE,
    USUAL_PACE,
    Pace,
    PaceRequest,
    PaceState,
    Release,
    begin,
    left_out_with,
    look_at,
    plan,
)
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...store.audit import PaceFacts
from ...store.jobs import Queue, Topic
from ...store.paces import HOUR, RECENT, Outlook, PaceChange, Pacing, Released
from ..sql import columns
from ..sql.paces import A_FEW, facts_of, pace_of, state_of, text
from . import diagnostics, registry, rows
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database
from .jobs import heads
from .jobs.heads import Head
from .jobs.housekeeping import expire
from .statistics import count_releases


class SqlitePaces:
    """The paces of queues."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._database.write(lambda tx: set_pace(tx, queue, request, by, usual, setting))

    async def follow(self, queue: str, *, by: str) -> bool:
        return await self._database.write(lambda tx: follow(tx, queue, by))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._database.write(lambda tx: release(tx, queues, wake=wake))

    async def all(self) -> list[Pacing]:
        return await self._database.read(pacings)

    async def of(self, queue: str) -> Pacing | None:
        return await self._database.read(lambda tx: pacing_of(tx, queue))

    async def changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._database.read(lambda tx: pace_changes(tx, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._database.read(lambda tx: outlook(tx, id))

    async def outlooks(self, ids: Sequence[str], *, most_ahead: int) -> list[Outlook]:
        return await self._database.read(lambda tx: outlooks(tx, ids, most_ahead))


def set_pace(
    tx: Transaction, queue: str, request: PaceRequest | None, by: str, usual: Pace, setting: str | None
) -> Pacing | None:
    if setting is not None:
        before = tx.db.execute(SQL["set_by_settings"], (queue,)).fetchone()
        if before is not None and before[0] == setting:
            return pacing_of(tx, queue)
    now = pacing_of(tx, queue)
    _set(tx, queue, None if request is None else request.over(usual if now is None else now.pace), by, setting)
    for other in left_out_with(queue):
        if tx.db.execute(SQL["pace"], (other,)).fetchone() is None:
            _set(tx, other, None, by, None)
    tx.wake(Topic.READY)
    tx.wake(Topic.PACE)
    return pacing_of(tx, queue)


def follow(tx: Transaction, queue: str, by: str) -> bool:
    what = {"queue": queue, "wall": tx.wall, "by": by}
    tx.db.execute(SQL["follow_again"], what)
    if not tx.db.changes():
        return False
    tx.db.execute(SQL["record_following"], what)
    tx.wake(Topic.READY)
    tx.wake(Topic.PACE)
    return True


def _set(tx: Transaction, queue: str, wanted: Pace | None, by: str, setting: str | None) -> None:
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    pace = None if wanted is None else text(wanted)
    lanes = None if wanted is None else json.dumps(wanted.governs.lanes)
    state = text(begin(tx.wall)) if row is None else row[2]
    what = {"queue": queue, "pace": pace, "lanes": lanes, "state": state, "wall": tx.wall, "by": by}
    if queue != EVERY_QUEUE:
        tx.db.execute(SQL["touch_queue"], {"name": queue, "wall": tx.wall})
    tx.db.execute(SQL["set_pace"], what)
    tx.db.execute(SQL["record_pace"], {**what, "setting": setting})


def pacings(tx: Transaction) -> list[Pacing]:
    found = [_pacing(tx, row) for row in tx.db.execute(SQL["paces"]).fetchall()]
    for every in [pacing for pacing in found if pacing.queue == EVERY_QUEUE]:
        followers: list[rows.Row] = tx.db.execute(SQL["followers"], (_governed(every.pace),)).fetchall()
        found += [_following(tx, every, queue, state) for queue, state in followers]
    return sorted(found, key=lambda pacing: pacing.queue)


def pacing_of(tx: Transaction, queue: str) -> Pacing | None:
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    if row is not None and not row[5]:
        return None if row[1] is None else _pacing(tx, row)
    every = None if queue == EVERY_QUEUE else pacing_of(tx, EVERY_QUEUE)
    return None if every is None else _following(tx, every, queue, None if row is None else row[2])


def _following(tx: Transaction, every: Pacing, queue: str, state: str | None) -> Pacing:
    """The pace of a queue that follows `*`."""
    row = (queue, text(every.pace), state or text(begin(tx.wall)), to_ms(every.set_at), every.set_by, 1)
    return msgspec.structs.replace(_pacing(tx, row), inherited=True)


def pace_changes(tx: Transaction, queue: str, limit: int) -> list[PaceChange]:
    found = tx.db.execute(SQL["pace_changes"], (queue, limit))
    return [
        PaceChange(name, from_ms(at), by, pace and pace_of(pace), bool(follows)) for name, at, by, pace, follows in found
    ]


def facts(tx: Transaction) -> list[PaceFacts]:
    """Every change of a pace, in order, for a checker."""
    return [facts_of(*row) for row in tx.db.execute(SQL["pace_facts"])]


def _pacing(tx: Transaction, row: rows.Row) -> Pacing:
    queue, text, state, set_at, set_by, _ = row
    pace = pace_of(text)
    lanes = _governed(pace)
    [(held, coming, soon, first)] = tx.db.execute(SQL["count_paced"], (tx.wall, queue, lanes, span_ms(HOUR)))
    counts = (held or 0, coming or 0, soon or 0, None if first is None else from_ms(first))
    quiet = _is_quiet(tx, queue, pace)
    return Pacing(queue, pace, state_of(state), from_ms(set_at), set_by, from_ms(tx.wall), *counts, quiet=quiet)


def _governed(pace: Pace) -> str:
    """The numbers of the lanes that a pace governs, also of those for parked jobs."""
    return json.dumps([number for lane in pace.governs.lanes for number in (lane, lane + PARKED)])


# Releases


class PacedQueue(msgspec.Struct, frozen=True):
    """A queue that has a pace and is not paused."""

    queue: str
    order: QueueOrder
    pace: Pace
    state: PaceState
    kept: bool = True  # whether there is a row to keep the state in

    def holds(self, lane: int) -> bool:
        return self.pace.holds(lane_of(lane))

    def held_heads(self, firsts: Iterable[Head]) -> list["HeldHead"]:
        """Those of these heads whose jobs the pace holds."""
        return [
            HeldHead(lane, rank, due_at)
            for queue, lane, rank, due_at, _ in firsts
            if queue == self.queue and self.holds(lane)
        ]


class HeldHead(NamedTuple):
    """The first job of a lane and rank of a queue with a pace, which must release it."""

    lane: int
    rank: int
    due_at: int


QueueSettings = PacedQueue | QueueOrder | None  # of a queue: its pace and order, or its order; None if paused


def settings_of(tx: Transaction, firsts: Sequence[Head], queues: Container[str] | None) -> dict[str, QueueSettings]:
    """The settings of these queues (None: of all) that differ from the usual ones. A queue that follows `*` and has no
    settings of its own is included only if the pace of `*` governs one of its heads."""
    found = {row[0]: row[1:] for row in tx.db.execute(SQL["queues_set"])}
    every = found.pop(EVERY_QUEUE, None)
    shared = None if every is None or every[4] is None else pace_of(every[4])
    settings: dict[str, QueueSettings] = {}
    for name, (step, strict, head_start, paused_at, pace, state, follows) in found.items():
        if queues is None or name in queues:
            own = pace_of(pace) if pace is not None else shared if follows != 0 else None
            order = columns.queue_order(step, strict, head_start)
            unpaused = order if own is None else _paced_queue(tx, name, order, own, state)
            settings[name] = None if paused_at is not None else unpaused
    if shared is not None:
        followers = {queue for queue, lane, *_ in firsts if queue not in found and shared.holds(lane_of(lane))}
        settings |= _followers(tx, [queue for queue in followers if queues is None or queue in queues], shared)
    return settings


def _followers(tx: Transaction, queues: Iterable[str], shared: Pace) -> dict[str, QueueSettings]:
    """Queues without settings of their own, which follow `*`."""
    states: dict[str, str] = dict(tx.db.execute(SQL["states"], (json.dumps(sorted(queues)),)))
    return {queue: _paced_queue(tx, queue, QueueOrder(), shared, states.get(queue)) for queue in queues}


def _paced_queue(tx: Transaction, queue: str, order: QueueOrder, pace: Pace, state: str | None) -> PacedQueue:
    return PacedQueue(queue, order, pace, begin(tx.wall) if state is None else state_of(state), kept=state is not None)


def paced_of(settings: Mapping[str, QueueSettings]) -> list[PacedQueue]:
    return [one for one in settings.values() if isinstance(one, PacedQueue)]


def release(tx: Transaction, queues: Sequence[str] | None, *, wake: bool) -> Released:
    """Release what the paces of these queues allow."""
    firsts = _heads(tx)
    paced = paced_of(settings_of(tx, firsts, queues))
    if not paced:
        return Released([], None, paced=tx.db.execute(SQL["every_pace"]).fetchone() is not None)
    jobs = release_due(tx, paced, firsts)
    if jobs and wake:
        tx.wake(Topic.READY)
    firsts = _heads(tx)
    looks = next_looks(tx, paced_of(settings_of(tx, firsts, queues)), firsts)
    next_in = timedelta(microseconds=max(min(looks) * 1000 - tx.wall_us, 0)) if looks else None
    return Released(jobs, next_in, paced=True)


def _heads(tx: Transaction) -> list[Head]:
    """The heads of the queues that have a pace."""
    if tx.db.execute(SQL["every_pace"]).fetchone() is not None:
        return heads.of_all(tx)
    return heads.of_queues(tx, [paced.queue for paced in paced_of(settings_of(tx, (), None))])


def release_due(tx: Transaction, paced: Sequence[PacedQueue], firsts: Sequence[Head]) -> list[Release]:
    """Release what these paces allow now. A pace whose next release time is still to come costs nothing."""
    jobs: list[Release] = []
    for one in paced:
        due_heads = [head for head in one.held_heads(firsts) if head.due_at <= tx.wall]
        if due_heads and look_at(one.state, tx.wall, min(head.due_at for head in due_heads)) <= tx.wall:
            jobs += _release(tx, one, due_heads, quiet=_is_quiet(tx, one.queue, one.pace))
    return jobs


def next_looks(tx: Transaction, paced: Sequence[PacedQueue], firsts: Sequence[Head]) -> list[int]:
    """When each pace may next release a job."""
    looks = []
    for one in paced:
        dues = [head.due_at for head in one.held_heads(firsts)]
        if dues:
            looks.append(look_at(one.state, tx.wall, min(dues)))
    return looks


def _release(tx: Transaction, paced: PacedQueue, due_heads: Sequence[HeldHead], *, quiet: bool) -> list[Release]:
    rate = paced.pace.rate(quiet=quiet)
    expire(tx, rate.reach)
    for width in (A_FEW, rate.reach):
        scans = [_scan(tx, paced, head, width) for head in due_heads]
        dues = sorted(due_at for scan in scans for _, due_at, _ in scan)[:width]
        planned = plan(rate, paced.state, tx.wall, dues)
        if len(planned.release_times) < width:
            break
    first = list(islice(heapq.merge(*scans), len(planned.release_times)))
    moves = [(number, release_at) for (_, _, number), release_at in zip(first, planned.release_times, strict=True)]
    if not paced.kept:
        tx.db.execute(SQL["follow"], (paced.queue, text(paced.state), tx.wall))
    tx.db.execute(SQL["keep_pace"], (text(planned.state), paced.queue))
    what = (Lane.RELEASED, tx.next_move(), json.dumps(moves))
    gone = {number: (id, rank, type) for number, id, rank, type in tx.db.execute(SQL["release"], what)}
    count_releases(tx, paced.queue, [(gone[number][2], due_at) for _, due_at, number in first])
    return [_released(paced.queue, *gone[number][:2], release_at) for number, release_at in moves]


def _scan(tx: Transaction, paced: PacedQueue, head: HeldHead, limit: int) -> list[tuple[int, int, int]]:
    """The first held rows behind a head: their place in the queue's order, due time and row id."""
    offset = paced.order.offset(lane_of(head.lane), Priority(head.rank))
    found = tx.db.execute(SQL["held_scan"], (paced.queue, head.lane, head.rank, tx.wall, tx.wall, limit))
    return [(due_at + offset, due_at, number) for number, due_at in found]


def _is_quiet(tx: Transaction, queue: str, pace: Pace) -> bool:
    """Whether no real-time job waits that rules out the rapid rate."""
    protected = json.dumps(pace.protected(queue))
    return tx.db.execute(SQL["real_time_waits"], (protected, Lane.REALTIME, tx.wall)).fetchone() is None


def _released(queue: str, id: bytes, rank: int, release_at: int) -> Release:
    return Release(rows.id_text(id), queue, Priority(rank), from_ms(release_at))


def outlook(tx: Transaction, id: str) -> Outlook | None:
    """What decides when a job runs, as of one moment."""
    job = rows.get(tx, id)
    return None if job is None else _Outlooks(tx).of(job)


def outlooks(tx: Transaction, ids: Sequence[str], most_ahead: int) -> list[Outlook]:
    view = _Outlooks(tx, most_ahead)
    return [view.of(job) for job in rows.listed(tx, ids)]


class _Outlooks:
    """Makes the outlooks of jobs in one transaction. What several jobs share is read once."""

    def __init__(self, tx: Transaction, most_ahead: int | None = None) -> None:
        self._tx, self._most = tx, most_ahead
        self._queues: dict[str, tuple[Queue, Pacing | None, int]] = {}
        self._workers, self._running = registry.workers(tx), cache(lambda: diagnostics.running(tx))

    def of(self, job: Job) -> Outlook:
        tx = self._tx
        if job.queue not in self._queues:
            self._queues[job.queue] = _surroundings(tx, job.queue)
        queue, pacing, recent = self._queues[job.queue]
        waits = job.status.waiting and to_ms(job.due_at) <= tx.wall
        ahead = _ahead(tx, job, queue, pacing, self._most) if waits else 0
        running = self._running() if waits else []
        return Outlook(job, from_ms(tx.wall), ahead, recent, queue.pause, pacing, self._workers, running, self._most)


def _surroundings(tx: Transaction, name: str) -> tuple[Queue, Pacing | None, int]:
    """A queue, the state of its pace, and how many of its jobs were completed lately."""
    queue = next((rows.queue(row) for row in tx.db.execute(SQL["queue"], (name,))), Queue(name))
    [(recent,)] = tx.db.execute(SQL["count_recent"], (name, Status.COMPLETED, tx.wall - span_ms(RECENT)))
    return queue, pacing_of(tx, name), recent


def _ahead(tx: Transaction, job: Job, queue: Queue, pacing: Pacing | None, most: int | None) -> int:
    """How many jobs, up to `most`, go before this one among those in the same situation: ready, or held by the pace."""
    governed = () if pacing is None else pacing.pace.governs.lanes
    place = to_ms(job.due_at) + queue.order.offset(job.lane, job.priority)
    [(number,)] = tx.db.execute(SQL["number"], (rows.id_bytes(job.id),))
    ahead = 0
    for lane, rank in list(tx.db.execute(SQL["lanes_and_ranks"], (job.queue,))):
        if lane < PARKED and (lane in governed) == (job.lane in governed) and (most is None or ahead < most):
            due = place - queue.order.offset(Lane(lane), Priority(rank))
            before = (job.queue, lane, rank, tx.wall, due, number, -1 if most is None else most - ahead)
            ahead += sum(count for (count,) in tx.db.execute(SQL["count_before"], before))
    return ahead
