"""The claim on SQLite: short range scans, one per queue, lane and rank that has something waiting, merged by order.

Nothing is written to make a job ready, so a million delayed rows cost a claim nothing, and a queue's settings apply at once.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice

import msgspec

from ...core.job import Lane, Priority
from ...core.order import QueueOrder
from ...core.spans import ZERO
from ...core.states import Status
from ...store import Claimed, ClaimedJob
from . import rows
from .batches import Transaction
from .statements import SQL

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

    @property
    def place(self) -> tuple[int, int]:
        return self.due_at + self.offset, self.rowid


def claim(tx: Transaction, worker_id: str, limit: int, *, lease: int, queues: Sequence[str] | None) -> Claimed:
    heads = list(_heads(tx, queues))
    ready = sorted((h for h in heads if h.due_at <= tx.wall), key=lambda h: h.place)
    chosen = _choose(tx, ready, limit)
    jobs = _take(tx, chosen, worker_id, lease)
    lapsed = [rows.lapsed_job(row) for row in tx.db.execute(SQL["lapsed"], (tx.boot, LAPSED_AT_ONCE))]
    exhausted = ready if len(jobs) < limit else []
    return Claimed(jobs, lapsed, _next_in(tx, heads, exhausted))


def as_of_now(claimed: Claimed, passed: int) -> Claimed:
    """The claim with its next moment counted from now, so many microseconds after the clock was read for it."""
    if claimed.next_in is None or passed <= 0:
        return claimed
    left = max(claimed.next_in - timedelta(microseconds=passed), ZERO)
    return Claimed(claimed.jobs, claimed.lapsed, left)


def _heads(tx: Transaction, queues: Sequence[str] | None) -> Iterator[_Head]:
    settings = {row[0]: row[1:] for row in tx.db.execute(SQL["queues_set"])}
    served = None if queues is None else frozenset(queues)
    for queue, lane, rank, due_at, rowid in tx.db.execute(SQL["claim_heads"]):
        if served is not None and queue not in served:
            continue
        order = _USUAL
        if queue in settings:
            step, strict, head_start, paused_at = settings[queue]
            if paused_at is not None:
                continue
            order = rows.queue_order(step, strict, head_start)
        yield _Head(queue, lane, rank, due_at, rowid, order.offset(Lane(lane), Priority(rank)))


def _choose(tx: Transaction, ready: Sequence[_Head], limit: int) -> list[int]:
    """The row ids of the first `limit` ready rows. Heads beyond the first `limit` have nothing among them."""
    scans = [_scan(tx, head, limit) for head in ready[:limit]]
    merged = heapq.merge(*scans) if len(scans) > 1 else iter(scans[0] if scans else ())
    return [rowid for _, rowid in islice(merged, limit)]


def _scan(tx: Transaction, head: _Head, limit: int) -> Iterator[tuple[int, int]]:
    cursor = tx.db.execute(SQL["claim_scan"], (head.queue, head.lane, head.rank, tx.wall, limit))
    return ((due_at + head.offset, rowid) for rowid, due_at in cursor)


def _take(tx: Transaction, chosen: list[int], worker_id: str, lease: int) -> list[ClaimedJob]:
    if not chosen:
        return []
    what = (Status.PROCESSING.value, worker_id, tx.boot + lease, tx.wall, json.dumps(chosen))
    taken = {row[0]: row for row in tx.db.execute(SQL["claim_take"], what)}
    return [rows.claimed_job(taken[rowid]) for rowid in chosen]


def _next_in(tx: Transaction, heads: Sequence[_Head], exhausted: Sequence[_Head]) -> timedelta | None:
    """Until the next due time or lapse, also behind the heads whose ready rows were all taken.

    What is ready and was not taken waits for a free slot, not for a time.
    """
    waits = [head.due_at * 1000 - tx.wall_us for head in heads if head.due_at > tx.wall]
    for head in exhausted:
        behind = (head.queue, head.lane, head.rank, tx.wall)
        waits += [due_at * 1000 - tx.wall_us for (due_at,) in tx.db.execute(SQL["next_due"], behind)]
    waits += [max(lease_until - tx.boot, 0) * 1000 for (lease_until,) in tx.db.execute(SQL["next_lapse"])]
    return timedelta(microseconds=min(waits)) if waits else None
