"""Claims on PostgreSQL: one statement, and more only if other workers have locked the first rows."""

import json
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ...core.job import Priority, QueueOrder
from ...core.pace import look_at
from ...core.spans import ZERO
from ...core.states import Status
from ...core.verdict import EXPIRED
from ...store.jobs import HELD_LOOK, Claimed, ClaimedJob, Topic
from ...store.line_feed import Drawn, Entry
from ..stored_paces import state_of
from . import changes, releases, rows
from .connections import Session

LAPSED_AT_ONCE = 100
MARGIN = 50  # rows to read beyond those wanted, since other workers may be claiming the first ones
ROUNDS = 12  # statements after which a claim gives up for now and asks to be repeated at once
_USUAL = rows.offsets(QueueOrder())


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a worker wants; the lease is in milliseconds. `number` lets a second try find its jobs."""

    worker_id: str
    limit: int
    lease: int
    queues: Sequence[str] | None
    in_turn: bool
    number: int = msgspec.field(default_factory=lambda: secrets.randbits(63))


async def claim(session: Session, request: ClaimRequest) -> Claimed:
    """Claim until there are enough jobs or no more. A second try (`session.again`) returns what the first one leased."""
    if session.again:
        found = await session.rows("claimed", claim=request.number, worker_id=request.worker_id)
        if found:
            return Claimed([rows.claimed_job(row) for row in found], [], ZERO)
    claimed, due = await _claim_all(session, request)
    if not due:
        return claimed
    if claimed.jobs:  # these first: the next claim releases what a pace allows
        return msgspec.structs.replace(claimed, next_in=ZERO)
    released = (await releases.release(session, due, wake=False)).jobs
    claimed, _ = await _claim_all(session, request)
    if len(released) > len(claimed.jobs):  # other workers may have claimed before, and found nothing
        session.wake(Topic.READY)
    return msgspec.structs.replace(claimed, released=released)


async def _claim_all(session: Session, request: ClaimRequest) -> tuple[Claimed, list[str]]:
    """Claim until there are enough jobs or no more; also returns the queues whose pace may release jobs now."""
    jobs: list[ClaimedJob] = []
    for round in range(ROUNDS):
        claimed, passed_over, due = await _claim(session, request, request.limit - len(jobs), MARGIN << round)
        jobs += claimed.jobs
        if not passed_over:
            return Claimed(jobs, claimed.lapsed, claimed.next_in), due
    return Claimed(jobs, claimed.lapsed, ZERO), due


async def draw(session: Session, request: ClaimRequest, entries: Sequence[Entry]) -> Drawn:
    """Lease the jobs that a line handed out. A second try (`session.again`) returns what the first one leased."""
    if session.again:
        found = await session.rows("claimed", claim=request.number, worker_id=request.worker_id)
        if found:
            now = await session.row("now")
            return Drawn(Claimed([rows.claimed_job(row) for row in found], [], ZERO), 0, now["us"])
    ids, queues = [rows.id_key(entry.id) for entry in entries], [entry.queue for entry in entries]
    sight, jobs, now_us = await _lease(session, "draw", request, ids=ids, queues=queues)
    expired = sight["gone"] + sight["expired_hooked"]
    if sight["expired_hooked"]:
        await changes.expire_with_deliveries(session, expired)
    next_in = _next_in(sight, now_us, request.lease if jobs else None, ())
    return Drawn(Claimed(jobs, rows.lapsed_jobs(sight["lapsed"]), next_in), expired, sight["us"])


async def _claim(session: Session, request: ClaimRequest, limit: int, margin: int) -> tuple[Claimed, bool, list[str]]:
    """Run one statement. Also returns whether to try again with more rows, and the queues whose pace may release jobs."""
    window = limit + margin if limit else 0
    sight, jobs, now_us = await _lease(
        session,
        "claim",
        request,
        usual=_USUAL,
        ranks=len(Priority),
        in_turn=request.in_turn,
        queues=None if request.queues is None else list(request.queues),
        window=window,
        limit=limit,
    )
    expired_hooked = sight["expired_hooked"]
    if expired_hooked:
        await changes.expire_with_deliveries(session, max(expired_hooked, limit))
    met = len(jobs) + sight["gone"] + expired_hooked
    looks = _looks(sight)
    later = [look for look in looks.values() if look > sight["wall"]]
    next_in = _next_in(sight, now_us, request.lease if jobs else None, later)
    if sight["gone"] or expired_hooked:  # jobs behind them may be ready
        next_in = ZERO
    locked = met < min(limit, sight["found"])
    wider = locked and sight["found"] == window  # else the statement has seen all ready jobs
    if locked and not wider:
        next_in = HELD_LOOK if next_in is None else min(next_in, HELD_LOOK)
    due = [queue for queue, look in looks.items() if look <= sight["wall"]]
    return Claimed(jobs, rows.lapsed_jobs(sight["lapsed"]), next_in), wider, due


async def _lease(
    session: Session, statement: str, request: ClaimRequest, **what: Any
) -> tuple[rows.Row, list[ClaimedJob], int]:
    """Run a statement that leases jobs: what it saw, the jobs, and the time on the database's clock by now."""
    asked = time.monotonic()  # the loop's own clock may stand still between two polls of its sockets
    found = await session.rows(
        statement,
        cancelled=EXPIRED.status.value,
        expired=EXPIRED.error,
        processing=Status.PROCESSING.value,
        worker_id=request.worker_id,
        claim=request.number,
        lease=request.lease,
        lapsed=LAPSED_AT_ONCE,
        **what,
    )
    sight = found[0]
    if sight["gone"] or sight["expired_hooked"]:
        session.wake(Topic.ENDED)
    now_us = sight["us"] + session.passed_since(sight["us"], asked)
    return sight, [rows.claimed_job(row) for row in found if row["id"] is not None], now_us


def _looks(sight: rows.Row) -> dict[str, int]:
    """When the pace of each queue may next release a job."""
    looks: dict[str, int] = {}
    for queue, state, first in json.loads(sight["held"] or "[]"):
        look = look_at(state_of(state), sight["wall"], first)
        looks[queue] = min(look, looks.get(queue, look))
    return looks


def _next_in(sight: rows.Row, now_us: int, lease: int | None, looks: Sequence[int]) -> timedelta | None:
    """The time until the next due time, release of a pace, or lapse, also of the leases just given.

    Ready jobs that were not taken do not count: they wait for a free slot, not for a time.
    """
    moments = [sight["next_due"], sight["next_lapse"], None if lease is None else sight["wall"] + lease, *looks]
    waits = [max(moment * 1000 - now_us, 0) for moment in moments if moment is not None]
    return timedelta(microseconds=min(waits)) if waits else None
