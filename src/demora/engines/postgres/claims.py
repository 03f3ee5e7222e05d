"""The claim on PostgreSQL: one statement, and another only where several workers got in each other's way."""

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
MARGIN = 50  # more rows to look at than are wanted, since others may be claiming the first ones
ROUNDS = 12  # after which a worker that got less than it wanted is told to come back at once
_USUAL = rows.offsets(QueueOrder())


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a worker asks for; the lease is in milliseconds. `number` names the call."""

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
    if claimed.jobs:  # these first: what a pace allows is let go by the next claim
        return msgspec.structs.replace(claimed, next_in=ZERO)
    released = (await releases.release(session, due, wake=False)).jobs
    claimed, _ = await _claim_all(session, request)
    if len(released) > len(claimed.jobs):  # others may have looked before and found nothing
        session.wake(Topic.READY)
    return msgspec.structs.replace(claimed, released=released)


async def _claim_all(session: Session, request: ClaimRequest) -> tuple[Claimed, list[str]]:
    """Claim until there is enough or nothing more; also the queues whose pace may let something go now."""
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
    expired = sight["gone"] + sight["unheard"]
    if sight["unheard"]:
        await changes.expire_with_deliveries(session, expired)
    next_in = _next_in(sight, now_us, request.lease if jobs else None, ())
    return Drawn(Claimed(jobs, rows.lapsed_jobs(sight["lapsed"]), next_in), expired, sight["us"])


async def _claim(session: Session, request: ClaimRequest, limit: int, margin: int) -> tuple[Claimed, bool, list[str]]:
    """One statement; also whether rows were passed over that may be free by now, and which paces may let something go."""
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
    unheard = sight["unheard"]
    if unheard:
        await changes.expire_with_deliveries(session, max(unheard, limit))
    met = len(jobs) + sight["gone"] + unheard
    looks = _looks(sight)
    later = [look for look in looks.values() if look > sight["wall"]]
    next_in = _next_in(sight, now_us, request.lease if jobs else None, later)
    if sight["gone"] or unheard:  # others may be ready behind them
        next_in = ZERO
    locked = met < min(limit, sight["found"])
    wider = locked and sight["found"] == window  # else all that is ready was looked at
    if locked and not wider:
        next_in = HELD_LOOK if next_in is None else min(next_in, HELD_LOOK)
    due = [queue for queue, look in looks.items() if look <= sight["wall"]]
    return Claimed(jobs, rows.lapsed_jobs(sight["lapsed"]), next_in), wider, due


async def _lease(
    session: Session, statement: str, request: ClaimRequest, **what: Any
) -> tuple[rows.Row, list[ClaimedJob], int]:
    """What a statement sees that leases jobs, the jobs, and what the database's clock says by now."""
    asked = time.monotonic()  # a loop's own time may stand still between two looks at its sockets
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
    if sight["gone"] or sight["unheard"]:
        session.wake(Topic.ENDED)
    now_us = sight["us"] + session.passed_since(sight["us"], asked)
    return sight, [rows.claimed_job(row) for row in found if row["id"] is not None], now_us


def _looks(sight: rows.Row) -> dict[str, int]:
    """When the pace of each queue may let something go."""
    looks: dict[str, int] = {}
    for queue, state, first in json.loads(sight["held"] or "[]"):
        look = look_at(state_of(state), sight["wall"], first)
        looks[queue] = min(look, looks.get(queue, look))
    return looks


def _next_in(sight: rows.Row, now_us: int, lease: int | None, looks: Sequence[int]) -> timedelta | None:
    """Until the next due time, slot of a pace, or lapse, also of what was just taken.

    What is ready and was not taken waits for a free slot, not for a time.
    """
    moments = [sight["next_due"], sight["next_lapse"], None if lease is None else sight["wall"] + lease, *looks]
    waits = [max(moment * 1000 - now_us, 0) for moment in moments if moment is not None]
    return timedelta(microseconds=min(waits)) if waits else None
