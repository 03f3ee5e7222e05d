"""The life of a lease on PostgreSQL: claims, renewals and reports, settlements, and lapses.

A claim is one statement, and more only if other workers have locked the first rows. Every write about a leased job requires
the token of the lease.
"""

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from ....core.action import RESUMED_TYPES
from ....core.job import Lane, Priority, QueueOrder
from ....core.pace import look_at
from ....core.spans import MICROSECOND, MILLISECOND, ZERO, span_ms
from ....core.states import WAITING, Status
from ....core.statistics import WINDOW_MS
from ....store.jobs import (
    LOCKED_RETRY,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Lease,
    LeasedJob,
    LeaseStatus,
    Report,
    Settlement,
    Topic,
)
from ....store.line_feed import ClaimedByIds, Entry
from ...sql.constants import LAPSED_AT_ONCE, MANY_HEADS, MOST_DUE
from ...sql.leases import status_of
from ...sql.paces import state_of
from .. import paces, rows
from ..connection.connections import Session
from . import housekeeping
from .deliveries import with_deliveries

MARGIN = 50  # rows to read beyond those wanted, since other workers may be claiming the first ones
ROUNDS = 12  # statements after which a claim gives up for now and asks to be repeated at once
PARKED_AT_ONCE = 500  # rows that one statement of parking looks at in each queue, lane and rank
FEW_TYPES = 50  # types up to which a claim beside parked jobs first looks for due jobs by their types
UNCOUNTED = 50  # claims after one that met too many heads or parked jobs, until a claim looks at all heads again
_USUAL = rows.offsets(QueueOrder())
_COUNTING = {
    "cancelled": Status.CANCELLED.value,
    "completed": Status.COMPLETED.value,
    "failed": Status.FAILED.value,
    "realtime": Lane.REALTIME.value,
    "window": WINDOW_MS,
}


class NumberedClaim(ClaimRequest, frozen=True):
    """A claim with a number, by which a second try finds the jobs that the first one leased."""

    number: int = msgspec.field(default_factory=lambda: secrets.randbits(63))


def numbered(request: ClaimRequest) -> NumberedClaim:
    """Give a claim a number of its own."""
    return NumberedClaim(*msgspec.structs.astuple(request))


class Recent:
    """Remembers for a number of claims what one of them met."""

    def __init__(self) -> None:
        self._claims = 0

    def met(self) -> None:
        self._claims = UNCOUNTED

    def forget(self) -> None:
        self._claims = 0

    def recalls(self) -> bool:
        """Return whether a recent claim met it. Each call counts as one claim."""
        self._claims -= self._claims > 0
        return self._claims > 0


class ClaimMemory:
    """What the claims of a store met, so that the claims after them find the heads in the cheapest way at once.

    `many_heads`: too many heads to look at each of them. `parked`: parked jobs, and few ready ones. The index keeps entries
    of jobs that were parked until the server vacuums it, and only a claim that looks for due jobs by their types does not
    pass them.
    """

    def __init__(self) -> None:
        self.many_heads, self.parked = Recent(), Recent()


async def claim(session: Session, request: NumberedClaim, memory: ClaimMemory) -> Claimed:
    """Claim until there are enough jobs or no more. A second try (`session.again`) returns what the first one leased."""
    if session.again:
        found = await session.rows("leased_before", claim=request.number, worker_id=request.worker_id)
        if found:
            return Claimed([rows.claimed_job(row) for row in found], [], ZERO)
    claimed, due = await _claim_all(session, request, memory)
    if not due:
        return claimed
    if claimed.jobs:  # these first: a claim that finds none, or the scheduler, releases what a pace allows
        return msgspec.structs.replace(claimed, next_in=ZERO)
    released = (await paces.release(session, due, wake=False)).jobs
    claimed, due = await _claim_all(session, request, memory)
    if len(released) > len(claimed.jobs):  # other workers may have claimed before, and found nothing
        session.wake(Topic.READY)
    next_in = claimed.next_in
    if due:  # another transaction has locked the pace or its jobs
        next_in = LOCKED_RETRY if next_in is None else min(next_in, LOCKED_RETRY)
    return msgspec.structs.replace(claimed, next_in=next_in, released=released)


async def _claim_all(session: Session, request: NumberedClaim, memory: ClaimMemory) -> tuple[Claimed, list[str]]:
    """Claim until there are enough jobs or no more; also returns the queues whose pace may release jobs now."""
    jobs: list[ClaimedJob] = []
    parked: frozenset[str] = frozenset()
    for round in range(ROUNDS):
        margin = MARGIN << round if not parked else MARGIN
        claimed, passed_over, due = await _claim(session, request, memory, request.limit - len(jobs), margin)
        jobs += claimed.jobs
        parked |= claimed.parked
        if not passed_over:
            return Claimed(jobs, claimed.lapsed, claimed.next_in, parked=parked), due
    return Claimed(jobs, claimed.lapsed, ZERO, parked=parked), due


async def _park(session: Session, statement: str, request: NumberedClaim, **what: Any) -> frozenset[str]:
    """Park jobs of other types than those of the claim, and return these types."""
    found = await session.rows(statement, types=_types(request), **what)
    if found:  # workers that know them may have found them locked
        session.wake(Topic.READY)
    return frozenset(row["type"] for row in found)


def _types(request: NumberedClaim) -> list[str] | None:
    return None if request.types is None else sorted(request.types)


def _queues(request: NumberedClaim) -> list[str] | None:
    return None if request.queues is None else list(request.queues)


async def claim_by_ids(session: Session, request: NumberedClaim, entries: Sequence[Entry]) -> ClaimedByIds:
    """Lease the jobs that a line handed out. A second try (`session.again`) returns what the first one leased."""
    if session.again:
        found = await session.rows("leased_before", claim=request.number, worker_id=request.worker_id)
        if found:
            now = await session.row("now")
            return ClaimedByIds(Claimed([rows.claimed_job(row) for row in found], [], ZERO), 0, now["us"])
    ids, queues = [rows.id_key(entry.id) for entry in entries], [entry.queue for entry in entries]
    summary, jobs, now_us = await _lease(session, "claim_by_ids", request, ids=ids, queues=queues, served=_queues(request))
    expired = summary["expired"]
    if expired:
        await housekeeping.expire(session, expired)
    parked: frozenset[str] = frozenset()
    if request.types is not None and len(jobs) + expired < len(entries):
        parked = await _park(session, "park_by_ids", request, ids=ids)
    next_in = _next_in(summary, now_us, span_ms(request.lease) if jobs else None, ())
    claimed = Claimed(jobs, rows.lapsed_jobs(summary["lapsed"]), next_in, parked=parked)
    due = summary["parked_due"]
    parked_in = None if due is None else timedelta(microseconds=max(due * 1000 - summary["us"], 0))
    return ClaimedByIds(claimed, expired, summary["us"], parked_in)


async def _claim(
    session: Session, request: NumberedClaim, memory: ClaimMemory, limit: int, margin: int
) -> tuple[Claimed, bool, list[str]]:
    """Run one claim statement and, if jobs of other types took the places of jobs that it could lease, one that parks them.
    Also returns whether to try again, and the queues whose pace may release jobs."""
    window = limit + margin if limit else 0
    for heads in _heads(request, memory):
        summary, jobs, now_us = await _lease(
            session,
            heads.claim,
            request,
            usual=_USUAL,
            ranks=len(Priority),
            in_turn=request.in_turn,
            window=window,
            limit=limit,
            **heads.what,
        )
        if not summary["too_many"] and (summary["found"] or not heads.tentative):
            break
    expired = summary["expired"]
    if expired:
        await housekeeping.expire(session, max(expired, limit))
    met = len(jobs) + expired
    looks = _looks(summary)
    later = [look for look in looks.values() if look > summary["wall"]]
    next_in = _next_in(summary, now_us, span_ms(request.lease) if jobs else None, later)
    if expired:  # jobs behind them may be ready
        next_in = ZERO
    locked = met < min(limit, summary["found"])
    wider = locked and summary["found"] == window  # else the statement has seen all ready jobs
    parked: frozenset[str] = frozenset()
    if summary["other_types"]:
        parked = await _park(session, heads.park, request, window=PARKED_AT_ONCE, **heads.what)
        wider = True
    elif summary["any_parked"] and summary["found"] < window and not heads.tentative:
        memory.parked.met()
    if locked and not wider:
        next_in = LOCKED_RETRY if next_in is None else min(next_in, LOCKED_RETRY)
    due = [queue for queue, look in looks.items() if look <= summary["wall"]]
    return Claimed(jobs, rows.lapsed_jobs(summary["lapsed"]), next_in, parked=parked), wider, due


class _Heads(NamedTuple):
    """A way to find the queues, lanes and ranks with waiting jobs: its statements, and what they need. If a claim that is
    `tentative` reads no job, it tries the next way: there may be jobs of other types to park."""

    claim: str
    park: str
    what: dict[str, Any]
    tentative: bool = False


def _heads(request: NumberedClaim, memory: ClaimMemory) -> Iterator[_Heads]:
    """The ways to find the heads, the cheapest first. Each except the last gives up if it finds too many."""
    queues = _queues(request)
    by_type = {"queues": queues, "waiting": sorted(WAITING)}
    if request.types is not None and len(request.types) <= FEW_TYPES and memory.parked.recalls():
        few = {**by_type, "most": request.limit + MARGIN}
        yield _Heads("claim_of_types", "park_of_types", few, tentative=True)
        memory.parked.forget()  # until the next claim that meets few ready jobs
    if queues is not None and len(queues) < MANY_HEADS:
        yield _Heads("claim_of_queues", "park_of_queues", {"queues": queues})
        return
    if request.types is not None:
        if not memory.many_heads.recalls():
            yield _Heads("claim", "park", {"queues": queues, "most": MANY_HEADS})
            memory.many_heads.met()
        yield _Heads("claim_of_types", "park_of_types", {**by_type, "most": MOST_DUE})
        memory.many_heads.forget()  # too many jobs are due, perhaps in a few queues by now
    yield _Heads("claim", "park", {"queues": queues, "most": 2**31 - 1})


async def _lease(
    session: Session, statement: str, request: NumberedClaim, **what: Any
) -> tuple[rows.Row, list[ClaimedJob], int]:
    """Run a statement that leases jobs: what it saw, the jobs, and the time on the database's clock by now."""
    asked = time.monotonic()  # the loop's own clock may stand still between two polls of its sockets
    found = await session.rows(
        statement,
        processing=Status.PROCESSING.value,
        worker_id=request.worker_id,
        claim=request.number,
        claim_id=None if request.claim_id is None else rows.text(request.claim_id),
        lease=span_ms(request.lease),
        lapsed=LAPSED_AT_ONCE,
        types=_types(request),
        resumed=list(RESUMED_TYPES),
        **what,
    )
    summary = found[0]
    now_us = summary["us"] + session.passed_since(summary["us"], asked)
    return summary, [rows.claimed_job(row) for row in found if row["id"] is not None], now_us


def _looks(summary: rows.Row) -> dict[str, int]:
    """When the pace of each queue may next release a job."""
    looks: dict[str, int] = {}
    for queue, state, first in json.loads(summary["held"] or "[]"):
        look = first if state is None else look_at(state_of(state), summary["wall"], first)
        looks[queue] = min(look, looks.get(queue, look))
    return looks


def _next_in(summary: rows.Row, now_us: int, lease: int | None, looks: Sequence[int]) -> timedelta | None:
    """The time until the next due time, release of a pace, or lapse, also of the leases just given.

    Ready jobs that were not taken do not count: they wait for a free slot, not for a time.
    """
    moments = [summary["next_due"], summary["next_lapse"], None if lease is None else summary["wall"] + lease, *looks]
    waits = [max(moment * 1000 - now_us, 0) for moment in moments if moment is not None]
    return timedelta(microseconds=min(waits)) if waits else None


async def claimed(session: Session, worker_id: str, claim_id: str) -> list[ClaimedJob]:
    found = await session.rows("claimed", worker_id=worker_id, claim_id=rows.text(claim_id))
    return [rows.claimed_job(row) for row in found]


# Renewals and reports


async def renew(session: Session, reports: Sequence[Report], lease: int) -> LeaseStatus:
    if not reports:
        return LeaseStatus(frozenset(), frozenset())
    logging = [report for report in reports if report.log]
    if session.again and logging:
        logged = await _logged(session, logging)
        logging = [report for report in logging if rows.id_key(report.lease.id) not in logged]
    found = await session.rows("renew", lease=lease, **_reports(reports), **_logs(logging))
    return status_of([report.lease for report in reports], ((str(id), token, cancel) for id, token, cancel in found))


async def _logged(session: Session, reports: Sequence[Report]) -> set[str]:
    """The jobs whose log lines the first try recorded."""
    lines = [(rows.id_key(report.lease.id), rows.text(report.log[-1][1])) for report in reports]
    found = await session.rows("logged", ids=[id for id, _ in lines], lines=[line for _, line in lines])
    return {str(id) for (id,) in found}


async def lease_status(session: Session, leases: Sequence[Lease]) -> LeaseStatus:
    found = await session.rows("lease_status", ids=[rows.id_key(lease.id) for lease in leases])
    return status_of(leases, ((str(id), token, cancel) for id, token, cancel in found))


async def leased(session: Session, worker_id: str, leases: Sequence[Lease] | None) -> list[LeasedJob]:
    if leases is None:
        return [rows.leased_job(row) for row in await session.rows("leased", worker_id=worker_id)]
    ids = [rows.id_key(lease.id) for lease in leases]
    found = [rows.leased_job(row) for row in await session.rows("leased_of", worker_id=worker_id, ids=ids)]
    return [job for job in found if job.lease in set(leases)]


# Settlements


async def settle(session: Session, settlements: Sequence[Settlement], *, process: str) -> list[Status | None]:
    """Record verdicts in one statement. On a second try (`session.again`) the verdicts that are on record count as ours."""
    known = await _settled(session, settlements) if session.again else {}
    left = [s for s in settlements if s.report.lease not in known]
    statuses, put_off = await _record(session, left, process, with_deliveries=False) if left else ({}, [])
    if put_off:
        async with with_deliveries(session) as ended:
            with_webhook, _ = await _record(session, put_off, process, with_deliveries=True)
            ended += [lease.id for lease, status in with_webhook.items() if status.ended]
        statuses |= with_webhook
    if known:
        session.topics |= {Topic.ENDED, Topic.READY}
    return [known.get(s.report.lease) or statuses.get(s.report.lease) for s in settlements]


async def _record(
    session: Session, settlements: Sequence[Settlement], process: str, *, with_deliveries: bool
) -> tuple[dict[Lease, Status], list[Settlement]]:
    """Record verdicts. Returns the new statuses, and the settlements put off because the job ends and has a webhook."""
    if not with_deliveries and all(map(_is_bare_success, settlements)):
        found = await session.rows("complete", process=process, **_completions(settlements), **_COUNTING)
    else:
        what = _settlements(settlements)
        found = await session.rows("settle", with_deliveries=with_deliveries, process=process, **what, **_COUNTING)
    if found[0]["ended"]:
        session.wake(Topic.ENDED)
    if found[0]["ready"]:
        session.wake(Topic.READY)
    leases = [settlement.report.lease for settlement in settlements]
    statuses = {leases[row["number"] - 1]: Status(row["status"]) for row in found if row["number"] is not None}
    return statuses, [settlements[number - 1] for number in found[0]["put_off"] or ()]


async def _settled(session: Session, settlements: Sequence[Settlement]) -> dict[Lease, Status]:
    """The status of each settlement that the first try recorded."""
    leases = [s.report.lease for s in settlements]
    asked = {"ids": [rows.id_key(lease.id) for lease in leases], "tokens": [lease.token for lease in leases]}
    found = {(str(row["id"]), row["asked"]): row for row in await session.rows("settled", **asked)}
    settled = {}
    for settlement in settlements:
        row = found.get((settlement.report.lease.id, settlement.report.lease.token))
        status = None if row is None else _is_ours(settlement, row)
        if status is not None:
            settled[settlement.report.lease] = status
    return settled


def _is_ours(settlement: Settlement, row: Any) -> Status | None:
    """The status that our verdict gave the job, if the first try recorded it."""
    moved = row["status"] != Status.PROCESSING or row["token"] != row["asked"]
    if not moved:
        return None
    either = (settlement.verdict, settlement.verdict.after_cancel_request())
    for verdict in sorted(either, key=lambda verdict: verdict.status != row["status"]):
        if verdict.status is Status.COMPLETED:
            ours = row["status"] == Status.COMPLETED and row["token"] == row["asked"]
        elif verdict.counts:
            ours = row["recorded"] and row["attempt_error"] == rows.text(verdict.error)
        else:
            ours = not row["recorded"] and (row["token"] != row["asked"] or row["status"] == verdict.status)
        if ours:
            return verdict.status
    return None


def _reports(reports: Sequence[Report]) -> dict[str, list[Any]]:
    return {
        "ids": [rows.id_key(report.lease.id) for report in reports],
        "tokens": [report.lease.token for report in reports],
        "rans": [report.ran // MILLISECOND for report in reports],
        "progresses": [report.progress for report in reports],
        "messages": [rows.text(report.message) for report in reports],
    }


def _logs(reports: Iterable[Report]) -> dict[str, list[Any]]:
    lines = [(report, after, line) for report in reports for after, line in report.log]
    return {
        "log_ids": [rows.id_key(report.lease.id) for report, _, _ in lines],
        "log_tokens": [report.lease.token for report, _, _ in lines],
        "log_rans": [report.ran // MILLISECOND for report, _, _ in lines],
        "log_afters": [after // MILLISECOND for _, after, _ in lines],
        "lines": [rows.text(line) for _, _, line in lines],
    }


def _settlements(settlements: Sequence[Settlement]) -> dict[str, Any]:
    verdicts = [s.verdict for s in settlements]
    return {
        **_reports([s.report for s in settlements]),
        **_logs(s.report for s in settlements if s.report.log),
        "rans": [None if s.lapsed else s.report.ran // MILLISECOND for s in settlements],
        "ran_us": [s.report.ran // MICROSECOND for s in settlements],
        "lapsed": [s.lapsed for s in settlements],
        "statuses": [v.status.value for v in verdicts],
        "ends": [v.status.ended for v in verdicts],
        "stands": [v.stands for v in verdicts],
        "results": [None if v.result is None else v.result.decode() for v in verdicts],
        "errors": [rows.text(v.error) for v in verdicts],
        "cancel_errors": [None if v.stands else rows.text(v.after_cancel_request().error) for v in verdicts],
        "tracebacks": [rows.text(v.traceback) for v in verdicts],
        "delays": [None if v.delay is None else span_ms(v.delay) for v in verdicts],
        "lanes": [None if v.lane is None else v.lane.value for v in verdicts],
        "credits": [v.credit for v in verdicts],
        "retries": [v.retry for v in verdicts],
        "strays": [v.no_handler for v in verdicts],
    }


def _completions(settlements: Sequence[Settlement]) -> dict[str, Any]:
    reports = [s.report for s in settlements]
    return {
        "ids": [rows.id_key(report.lease.id) for report in reports],
        "tokens": [report.lease.token for report in reports],
        "results": [None if s.verdict.result is None else s.verdict.result.decode() for s in settlements],
        "ran_us": [report.ran // MICROSECOND for report in reports],
    }


def _is_bare_success(settlement: Settlement) -> bool:
    """Return whether `complete` can record this settlement: a success that reports nothing else."""
    report = settlement.report
    return (
        settlement.verdict.status is Status.COMPLETED
        and not settlement.lapsed
        and not report.log
        and report.progress is None
        and report.message is None
    )
