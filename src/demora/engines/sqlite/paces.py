"""Paces on SQLite: setting and reading them, and releasing the jobs that they allow in the transaction of a claim."""

import heapq
import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice

import msgspec

from ...core.job import Job, Lane, Priority, QueueOrder
from ...core.pace import USUAL_PACE, Pace, PaceState, Release, begin, look_at, plan
from ...core.pace_request import PaceRequest
from ...core.spans import from_ms, span_ms, to_ms
from ...core.states import Status
from ...store.audit import PaceFacts
from ...store.jobs import Queue, Topic
from ...store.paces import HOUR, RECENT, Outlook, PaceChange, Pacing, Released
from ..sql import columns
from ..sql.paces import A_FEW, facts_of, pace_of, state_of, text
from . import diagnostics, registry, rows
from .changes import expire_due
from .connections import SQL
from .database import Database
from .transactions import Transaction

Head = tuple[str, int, int, int, int]  # queue, lane, rank, due time and row id of the first row of a queue, lane and rank


class SqlitePaces:
    """The paces of queues."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(
        self, queue: str, request: PaceRequest | None, *, by: str, usual: Pace = USUAL_PACE, setting: str | None = None
    ) -> Pacing | None:
        return await self._database.write(lambda tx: set_pace(tx, queue, request, by, usual, setting))

    async def release(self, queues: Sequence[str] | None = None, *, wake: bool = True) -> Released:
        return await self._database.write(lambda tx: release(tx, queues, wake=wake))

    async def all(self) -> list[Pacing]:
        return await self._database.read(pacings)

    async def changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self._database.read(lambda tx: pace_changes(tx, queue, limit))

    async def outlook(self, id: str) -> Outlook | None:
        return await self._database.read(lambda tx: outlook(tx, id))


def set_pace(
    tx: Transaction, queue: str, request: PaceRequest | None, by: str, usual: Pace, setting: str | None
) -> Pacing | None:
    if setting is not None:
        before = tx.db.execute(SQL["set_by_settings"], (queue,)).fetchone()
        if before is not None and before[0] == setting:
            return pacing_of(tx, queue)
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    now = pace_of(row[1]) if row is not None and row[1] is not None else usual
    wanted = None if request is None else request.over(now)
    pace = None if wanted is None else text(wanted)
    lanes = None if wanted is None else json.dumps(wanted.governs.lanes)
    state = text(begin(tx.wall)) if row is None else row[2]
    what = {"queue": queue, "pace": pace, "lanes": lanes, "state": state, "wall": tx.wall, "by": by}
    tx.db.execute(SQL["touch_queue"], {"name": queue, "wall": tx.wall})
    tx.db.execute(SQL["set_pace"], what)
    tx.db.execute(SQL["record_pace"], {**what, "setting": setting})
    tx.wake(Topic.READY)
    tx.wake(Topic.PACE)
    return pacing_of(tx, queue)


def pacings(tx: Transaction) -> list[Pacing]:
    return [_pacing(tx, row) for row in tx.db.execute(SQL["paces"]).fetchall()]


def pacing_of(tx: Transaction, queue: str) -> Pacing | None:
    row = tx.db.execute(SQL["pace"], (queue,)).fetchone()
    return None if row is None or row[1] is None else _pacing(tx, row)


def pace_changes(tx: Transaction, queue: str, limit: int) -> list[PaceChange]:
    found = tx.db.execute(SQL["pace_changes"], (queue, limit))
    return [PaceChange(name, from_ms(at), by, None if pace is None else pace_of(pace)) for name, at, by, pace in found]


def facts(tx: Transaction) -> list[PaceFacts]:
    """Every change of a pace, in order, for a checker."""
    return [facts_of(queue, at, pace) for queue, at, pace in tx.db.execute(SQL["pace_facts"])]


def _pacing(tx: Transaction, row: rows.Row) -> Pacing:
    queue, text, state, set_at, set_by = row
    pace = pace_of(text)
    lanes, protected = json.dumps(pace.governs.lanes), json.dumps(pace.protected(queue))
    [(held, coming, soon, first)] = tx.db.execute(SQL["count_paced"], (tx.wall, queue, lanes, span_ms(HOUR)))
    waits = tx.db.execute(SQL["real_time_waits"], (protected, Lane.REALTIME, tx.wall)).fetchone()
    counts = (held or 0, coming or 0, soon or 0, None if first is None else from_ms(first))
    return Pacing(queue, pace, state_of(state), from_ms(set_at), set_by, from_ms(tx.wall), *counts, quiet=waits is None)


# Releases


class PacedQueue(msgspec.Struct, frozen=True):
    """A queue that has a pace and is not paused."""

    queue: str
    order: QueueOrder
    pace: Pace
    state: PaceState

    def governs(self, head: Head) -> bool:
        return head[0] == self.queue and self.holds(head[1])

    def holds(self, lane: int) -> bool:
        return lane in self.pace.governs.lanes


def release(tx: Transaction, queues: Sequence[str] | None, *, wake: bool) -> Released:
    """Release what the paces of these queues allow."""
    paced = _paced(tx, queues)
    if not paced:
        return Released([], None, paced=False)
    jobs = release_due(tx, paced, heads(tx))
    if jobs and wake:
        tx.wake(Topic.READY)
    looks = next_looks(tx, _paced(tx, queues), heads(tx))
    next_in = timedelta(microseconds=max(min(looks) * 1000 - tx.wall_us, 0)) if looks else None
    return Released(jobs, next_in, paced=True)


def heads(tx: Transaction) -> list[Head]:
    """The first waiting row of each queue, lane and rank."""
    return list(tx.db.execute(SQL["claim_heads"]))


def release_due(tx: Transaction, paced: Sequence[PacedQueue], firsts: Sequence[Head]) -> list[Release]:
    """Release what these paces allow now; a pace whose next release time is to come costs nothing."""
    jobs: list[Release] = []
    for held in paced:
        lines = [head for head in firsts if held.governs(head) and head[3] <= tx.wall]
        if lines and look_at(held.state, tx.wall, min(head[3] for head in lines)) <= tx.wall:
            jobs += _release(tx, held, lines, quiet=_is_quiet(held, firsts, tx.wall))
    return jobs


def next_looks(tx: Transaction, paced: Sequence[PacedQueue], firsts: Sequence[Head]) -> list[int]:
    """When each pace may next release a job."""
    looks = []
    for held in paced:
        dues = [head[3] for head in firsts if held.governs(head)]
        if dues:
            looks.append(look_at(held.state, tx.wall, min(dues)))
    return looks


def paced_queue(queue: str, order: QueueOrder, pace: str, state: str) -> PacedQueue:
    return PacedQueue(queue, order, pace_of(pace), state_of(state))


def _paced(tx: Transaction, queues: Sequence[str] | None) -> list[PacedQueue]:
    """Of these queues, those that have a pace and are not paused."""
    return [
        paced_queue(name, columns.queue_order(step, strict, head_start), pace, state)
        for name, step, strict, head_start, paused_at, pace, state in tx.db.execute(SQL["queues_set"])
        if pace is not None and paused_at is None and (queues is None or name in queues)
    ]


def _release(tx: Transaction, held: PacedQueue, lines: Sequence[Head], *, quiet: bool) -> list[Release]:
    rate = held.pace.rate(quiet=quiet)
    expire_due(tx, rate.reach)
    for width in (A_FEW, rate.reach):
        scans = [_scan(tx, held, line, width) for line in lines]
        dues = sorted(due_at for scan in scans for _, due_at, _ in scan)[:width]
        planned = plan(rate, held.state, tx.wall, dues)
        if len(planned.slots) < width:
            break
    first = islice(heapq.merge(*scans), len(planned.slots))
    moves = [(number, slot) for (_, _, number), slot in zip(first, planned.slots, strict=True)]
    tx.db.execute(SQL["keep_pace"], (text(planned.state), held.queue))
    what = (Lane.RELEASED, tx.next_move(), json.dumps(moves))
    gone = {number: (id, rank) for number, id, rank in tx.db.execute(SQL["release"], what)}
    return [_released(held.queue, *gone[number], slot) for number, slot in moves]


def _scan(tx: Transaction, held: PacedQueue, line: Head, limit: int) -> list[tuple[int, int, int]]:
    """The first held rows behind a head: their place in the queue's order, due time and row id."""
    queue, lane, rank, *_ = line
    offset = held.order.offset(Lane(lane), Priority(rank))
    found = tx.db.execute(SQL["held_scan"], (queue, lane, rank, tx.wall, tx.wall, limit))
    return [(due_at + offset, due_at, number) for number, due_at in found]


def _is_quiet(held: PacedQueue, firsts: Sequence[Head], wall: int) -> bool:
    protected = held.pace.protected(held.queue)
    return not any(lane == Lane.REALTIME and due <= wall and queue in protected for queue, lane, _, due, _ in firsts)


def _released(queue: str, id: bytes, rank: int, slot: int) -> Release:
    return Release(rows.id_text(id), queue, Priority(rank), from_ms(slot))


def outlook(tx: Transaction, id: str) -> Outlook | None:
    """What decides when a job runs, as of one moment."""
    job = rows.get(tx, id)
    if job is None:
        return None
    queue = next((rows.queue(row) for row in tx.db.execute(SQL["queue"], (job.queue,))), Queue(job.queue))
    pacing = pacing_of(tx, job.queue)
    since = tx.wall - span_ms(RECENT)
    [(recent,)] = tx.db.execute(SQL["count_recent"], (job.queue, Status.COMPLETED, since))
    waits = job.status.waiting and to_ms(job.due_at) <= tx.wall
    ahead = _ahead(tx, job, queue, pacing) if waits else 0
    running = diagnostics.running(tx) if waits else []
    return Outlook(job, from_ms(tx.wall), ahead, recent, queue.pause, pacing, registry.workers(tx), running)


def _ahead(tx: Transaction, job: Job, queue: Queue, pacing: Pacing | None) -> int:
    """How many jobs go before this one among those in the same situation: ready, or held by the pace."""
    governed = () if pacing is None else pacing.pace.governs.lanes
    place = to_ms(job.due_at) + queue.order.offset(job.lane, job.priority)
    [(number,)] = tx.db.execute(SQL["number"], (rows.id_bytes(job.id),))
    ahead = 0
    for lane, rank in list(tx.db.execute(SQL["lines"], (job.queue,))):
        if (lane in governed) == (job.lane in governed):
            due = place - queue.order.offset(Lane(lane), Priority(rank))
            before = (job.queue, lane, rank, tx.wall, due, number)
            ahead += sum(count for (count,) in tx.db.execute(SQL["count_before"], before))
    return ahead
