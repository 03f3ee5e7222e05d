"""Claims on SQLite: one short range scan for each queue, lane and rank with waiting jobs, merged in order.

No write makes a job ready: its due time passes. So a million delayed rows cost a claim nothing, and a queue's settings apply
at once.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice

import msgspec

from ...core.job import Lane, Priority, QueueOrder
from ...core.spans import ZERO
from ...core.states import Status
from ...store.jobs import Claimed, ClaimedJob, LapsedJob, Topic
from ...store.line_feed import Drawn, Entry
from .. import shared_rows
from . import releases, rows
from .changes import expire
from .connections import SQL
from .transactions import Transaction

LAPSED_AT_ONCE = 100
_USUAL = QueueOrder()


class _Head(msgspec.Struct, frozen=True):
    """The first waiting row of one queue, lane and rank; `offset` turns a due time into its place in the order."""

    queue: str
    lane: int
    rank: int
    due_at: int
    rowid: int
    offset: int
    turn: int  # the place of its queue, if queues are served in turn

    @property
    def place(self) -> "_Place":
        return self.turn, self.due_at + self.offset, self.rowid


_Place = tuple[int, int, int]
_Settings = releases.PacedQueue | QueueOrder | None  # of a queue: its pace and order, or its order; None if paused


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a worker wants; the lease is in milliseconds."""

    worker_id: str
    limit: int
    lease: int
    queues: Sequence[str] | None
    in_turn: bool


def claim(tx: Transaction, request: ClaimRequest) -> Claimed:
    """Lease ready jobs, and return the jobs whose lease has lapsed; none of the latter for a while after a stall."""
    turns = _turns(request)
    settings = _settings(tx, turns)
    firsts = releases.heads(tx)
    released = releases.release_due(tx, _paced(settings), firsts)
    if released:
        settings, firsts = _settings(tx, turns), releases.heads(tx)
    claimed = _claim(tx, request, list(_heads(firsts, settings, turns)), releases.next_looks(tx, _paced(settings), firsts))
    if len(released) > len(claimed.jobs):  # other workers may have claimed before, and found nothing
        tx.wake(Topic.READY)
    return msgspec.structs.replace(claimed, released=released) if released else claimed


def _claim(tx: Transaction, request: ClaimRequest, heads: Sequence[_Head], looks: Sequence[int]) -> Claimed:
    ready = sorted((h for h in heads if h.due_at <= tx.wall), key=lambda h: h.place)
    chosen = _choose(tx, ready, request.limit)
    jobs = _take(tx, chosen, request)
    lapsed = _lapsed(tx)
    if len(jobs) < len(chosen):  # some had expired, and jobs behind them may be ready
        return Claimed(jobs, lapsed, ZERO)
    exhausted = ready if len(jobs) < request.limit else []
    return Claimed(jobs, lapsed, _next_in(tx, heads, exhausted, looks))


def draw(tx: Transaction, request: ClaimRequest, entries: Sequence[Entry]) -> Drawn:
    """Lease the jobs that a line handed out, if their rows still wait in that queue and are due."""
    settings = _settings(tx, None)
    asked = json.dumps([(entry.id.replace("-", ""), entry.queue) for entry in entries])
    found = list(tx.db.execute(SQL["drawable"], (asked, tx.wall))) if entries else []
    chosen = [rowid for rowid, queue, lane in found if _hands_out(settings.get(queue, _USUAL), lane)]
    jobs = _take(tx, chosen, request)
    return Drawn(Claimed(jobs, _lapsed(tx), _next_in(tx, (), (), ())), len(chosen) - len(jobs), tx.wall_us)


def as_of_now(claimed: Claimed, passed: int) -> Claimed:
    """The claim with `next_in` counted from now, so many microseconds after it was computed."""
    if claimed.next_in is None or passed <= 0:
        return claimed
    left = max(claimed.next_in - timedelta(microseconds=passed), ZERO)
    return msgspec.structs.replace(claimed, next_in=left)


def _turns(request: ClaimRequest) -> dict[str, int] | None:
    """The place of each queue that the worker serves; None if it serves all of them."""
    return None if request.queues is None else {queue: n if request.in_turn else 0 for n, queue in enumerate(request.queues)}


def _settings(tx: Transaction, turns: dict[str, int] | None) -> dict[str, _Settings]:
    """The settings of the queues that the worker serves."""
    settings: dict[str, _Settings] = {}
    for name, step, strict, head_start, paused_at, pace, state in tx.db.execute(SQL["queues_set"]):
        if turns is None or name in turns:
            order = shared_rows.queue_order(step, strict, head_start)
            unpaused = order if pace is None else releases.read(name, order, pace, state)
            settings[name] = None if paused_at is not None else unpaused
    return settings


def _paced(settings: dict[str, _Settings]) -> list[releases.PacedQueue]:
    return [held for held in settings.values() if isinstance(held, releases.PacedQueue)]


def _heads(
    firsts: Sequence[releases.Head],
    settings: dict[str, _Settings],
    turns: dict[str, int] | None,
) -> Iterator[_Head]:
    """The heads that may be handed out: neither those of paused queues nor those that a pace governs."""
    for first in firsts:
        queue, lane, rank, due_at, rowid = first
        turn = 0 if turns is None else turns.get(queue)
        own = settings.get(queue, _USUAL)
        if turn is None or own is None or not _hands_out(own, lane):
            continue
        order = own.order if isinstance(own, releases.PacedQueue) else own
        yield _Head(queue, lane, rank, due_at, rowid, order.offset(Lane(lane), Priority(rank)), turn)


def _hands_out(own: _Settings, lane: int) -> bool:
    """Whether jobs of a lane may be handed out: neither those of a paused queue nor those that a pace governs."""
    return own is not None and not (isinstance(own, releases.PacedQueue) and own.holds(lane))


def _choose(tx: Transaction, ready: Sequence[_Head], limit: int) -> list[int]:
    """The row ids of the first `limit` ready rows. None of them is behind a head after the first `limit` heads."""
    scans = [_scan(tx, head, limit) for head in ready[:limit]]
    merged = heapq.merge(*scans) if len(scans) > 1 else iter(scans[0] if scans else ())
    return [rowid for _, _, rowid in islice(merged, limit)]


def _scan(tx: Transaction, head: _Head, limit: int) -> Iterator[_Place]:
    cursor = tx.db.execute(SQL["claim_scan"], (head.queue, head.lane, head.rank, tx.wall, limit))
    return ((head.turn, due_at + head.offset, rowid) for rowid, due_at in cursor)


def _take(tx: Transaction, chosen: list[int], request: ClaimRequest) -> list[ClaimedJob]:
    """Lease the chosen rows; expire those whose time passed before they were ever started."""
    if not chosen:
        return []
    what = (Status.PROCESSING.value, request.worker_id, tx.boot + request.lease, tx.wall, json.dumps(chosen), tx.wall)
    taken = {row[0]: row for row in tx.db.execute(SQL["claim_take"], what)}
    expire(tx, [rowid for rowid in chosen if rowid not in taken])
    return [rows.claimed_job(taken[rowid]) for rowid in chosen if rowid in taken]


def _lapsed(tx: Transaction) -> list[LapsedJob]:
    """The jobs whose lease has lapsed, except those whose workers may have been unable to renew until just now."""
    found = list(tx.db.execute(SQL["lapsed"], (tx.lease_clock, LAPSED_AT_ONCE)))
    if found and tx.stall.heeds_others(tx.boot):
        found = list(tx.db.execute(SQL["lapsed"], (tx.stall.lease_clock(tx.boot), LAPSED_AT_ONCE)))
    return [rows.lapsed_job(row) for row in found]


def _next_in(tx: Transaction, heads: Sequence[_Head], exhausted: Sequence[_Head], looks: Sequence[int]) -> timedelta | None:
    """The time until the next due time, lapse or release of a pace, also behind heads whose ready rows were all taken.

    Ready jobs that were not taken do not count: they wait for a free slot, not for a time.
    """
    waits = [max(look * 1000 - tx.wall_us, 0) for look in looks]
    waits += [head.due_at * 1000 - tx.wall_us for head in heads if head.due_at > tx.wall]
    for head in exhausted:
        behind = (head.queue, head.lane, head.rank, tx.wall)
        waits += [due_at * 1000 - tx.wall_us for (due_at,) in tx.db.execute(SQL["next_due"], behind)]
    spared = tx.stall.spared_until(tx.boot) or 0
    waits += [max(lease_until - tx.boot, spared - tx.boot, 0) * 1000 for (lease_until,) in tx.db.execute(SQL["next_lapse"])]
    return timedelta(microseconds=min(waits)) if waits else None
