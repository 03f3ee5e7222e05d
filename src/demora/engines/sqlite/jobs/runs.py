"""The life of a lease on SQLite: claims, renewals and reports, settlements, and lapses.

A claim is one short range scan for each queue, lane and rank with waiting jobs, merged in order. Without a pace, no
write makes a job ready: its due time passes. So a million delayed rows cost a claim nothing, and a queue's settings apply at
once. Every write about a leased job requires the token of the lease.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from ....core.job import PARKED, Priority, QueueOrder, lane_of
from ....core.spans import MICROSECOND, MILLISECOND, ZERO, span_ms
from ....core.states import Status
from ....core.verdict import Verdict
from ....core.workers import RENEWALS_IN_A_LEASE
from ....store.jobs import (
    Claimed,
    ClaimedJob,
    ClaimRequest,
    LapsedJob,
    Lease,
    LeasedJob,
    LeaseStatus,
    Report,
    Settlement,
    Topic,
)
from ....store.line_feed import ClaimedByIds, Entry
from ...sql.constants import LAPSED_AT_ONCE
from ...sql.leases import status_of
from .. import paces, rows
from ..audit import trace
from ..connection.connections import SQL
from ..connection.locking import LEAST_SPARING
from ..connection.transactions import Transaction
from ..statistics import Counted, Writer
from . import changes, heads, housekeeping
from .deliveries import record_deliveries

PARKINGS = 4  # rounds of parking in one claim
PARKED_AT_ONCE = 500  # rows that one round looks at behind each head
_USUAL = QueueOrder()
_encode = msgspec.json.encode


class _Head(msgspec.Struct, frozen=True):
    """The first waiting row of one queue, lane and rank; `offset` turns a due time into its place in the order. A head with
    a type is that of the parked rows of this type."""

    queue: str
    lane: int
    rank: int
    due_at: int
    rowid: int
    offset: int
    turn: int  # the place of its queue, if queues are served in turn
    type: str | None = None

    @property
    def place(self) -> "_Place":
        return self.turn, self.due_at + self.offset, self.rowid


_Place = tuple[int, int, int]
_TypedHead = tuple[str | None, str, int, int, int, int]  # the type if it is parked, and a `heads.Head`


def claim(tx: Transaction, request: ClaimRequest) -> Claimed:
    """Lease ready jobs, and return the jobs whose lease has lapsed. For a while after a stall, it spares the leases that
    have lapsed since the stall began."""
    turns = _turns(request)
    served = None if turns is None else turns.keys()
    firsts = heads.for_claim(tx, served, request.types)
    settings = paces.settings_of(tx, firsts, turns)
    released = paces.release_due(tx, paces.paced_of(settings), firsts)
    if released:
        firsts = heads.for_claim(tx, served, request.types)
        settings = paces.settings_of(tx, firsts, turns)
    looks = paces.next_looks(tx, paces.paced_of(settings), firsts)
    claimed = _claim(tx, request, list(_heads(tx, request, firsts, settings)), looks)
    for _ in range(PARKINGS):
        if not claimed.parked or len(claimed.jobs) >= request.limit:
            break
        rest = msgspec.structs.replace(request, limit=request.limit - len(claimed.jobs))
        firsts = heads.for_claim(tx, served, request.types)
        claimed = _joined(claimed, _claim(tx, rest, list(_heads(tx, request, firsts, settings)), looks))
    if len(released) > len(claimed.jobs):  # other workers may have claimed before, and found nothing
        tx.wake(Topic.READY)
    return msgspec.structs.replace(claimed, released=released) if released else claimed


def _claim(tx: Transaction, request: ClaimRequest, firsts: Sequence[_Head], looks: Sequence[int]) -> Claimed:
    """Lease the first ready jobs. If some of them are of other types, park them and others behind the same heads."""
    ready = sorted((h for h in firsts if h.due_at <= tx.wall), key=lambda h: h.place)
    chosen = _choose(tx, ready, request.limit)
    jobs, strange = _take(tx, chosen, request)
    parked = _park(tx, ready, request) if strange else frozenset()
    lapsed = _lapsed(tx)
    if len(jobs) < len(chosen):  # some had expired or were parked, and jobs behind them may be ready
        return Claimed(jobs, lapsed, ZERO, parked=parked)
    exhausted = ready if len(jobs) < request.limit else []
    return Claimed(jobs, lapsed, _next_in(tx, firsts, exhausted, looks))


def _joined(first: Claimed, then: Claimed) -> Claimed:
    return Claimed(first.jobs + then.jobs, then.lapsed, then.next_in, parked=first.parked | then.parked)


def claim_by_ids(tx: Transaction, request: ClaimRequest, entries: Sequence[Entry]) -> ClaimedByIds:
    """Lease the jobs that a line handed out, if their rows still wait in that queue and are due."""
    asked = json.dumps([(entry.id.replace("-", ""), entry.queue) for entry in entries])
    found = list(tx.db.execute(SQL["claimable"], (asked, tx.wall))) if entries else []
    settings = paces.settings_of(tx, [(queue, lane, 0, 0, rowid) for rowid, queue, lane in found], None)
    handed = [rowid for rowid, queue, lane in found if _hands_out(settings.get(queue, _USUAL), lane)]
    chosen = list(dict.fromkeys(handed))  # a line may hand out a job twice
    jobs, strange = _take(tx, chosen, request)
    parked = _note_parked(tx, list(tx.db.execute(SQL["park_chosen"], (json.dumps(strange),)))) if strange else frozenset()
    if parked:  # the line no longer hands these out, so that workers that know them must claim
        tx.wake(Topic.READY)
    claimed = Claimed(jobs, _lapsed(tx), _next_in(tx, (), (), ()), parked=parked)
    return ClaimedByIds(claimed, len(chosen) - len(jobs) - len(strange), tx.wall_us, _parked_in(tx, request))


def _parked_in(tx: Transaction, request: ClaimRequest) -> timedelta | None:
    """The time until a parked job that the claim may lease is due."""
    if tx.db.execute(SQL["any_parked"]).fetchone() is None:
        return None
    dues = [
        due_at
        for _, queue, _, _, due_at, _ in _parked_heads(tx, request)
        if request.queues is None or queue in request.queues
    ]
    return timedelta(microseconds=max(min(dues) * 1000 - tx.wall_us, 0)) if dues else None


def as_of_now(claimed: Claimed, passed: int) -> Claimed:
    """The claim with `next_in` counted from now, this many microseconds after it was computed."""
    if claimed.next_in is None or passed <= 0:
        return claimed
    left = max(claimed.next_in - timedelta(microseconds=passed), ZERO)
    return msgspec.structs.replace(claimed, next_in=left)


def _turns(request: ClaimRequest) -> dict[str, int] | None:
    """The place of each queue that the worker serves; None if it serves all of them."""
    return None if request.queues is None else {queue: n if request.in_turn else 0 for n, queue in enumerate(request.queues)}


def _heads(
    tx: Transaction,
    request: ClaimRequest,
    firsts: Sequence[heads.Head],
    settings: dict[str, paces.QueueSettings],
) -> Iterator[_Head]:
    """The heads that may be handed out: neither those of paused queues nor those that a pace governs. Heads of parked rows
    only if the claim names their type."""
    turns = _turns(request)
    for type, queue, lane, rank, due_at, rowid in _of_types(tx, request, firsts):
        turn = 0 if turns is None else turns.get(queue)
        own = settings.get(queue, _USUAL)
        if turn is None or own is None or not _hands_out(own, lane):
            continue
        order = own.order if isinstance(own, paces.PacedQueue) else own
        yield _Head(queue, lane, rank, due_at, rowid, order.offset(lane_of(lane), Priority(rank)), turn, type)


def _of_types(tx: Transaction, request: ClaimRequest, firsts: Sequence[heads.Head]) -> list[_TypedHead]:
    """The heads whose rows may be of the types of the claim. Without types, parked rows are like all others."""
    parked = any(lane >= PARKED for _, lane, *_ in firsts)
    plain: list[_TypedHead] = [(None, *first) for first in firsts if request.types is None or first[1] < PARKED]
    return plain + _parked_heads(tx, request) if parked and request.types is not None else plain


def _parked_heads(tx: Transaction, request: ClaimRequest) -> list[_TypedHead]:
    """The first parked row of each of the types, queue, lane and rank; without types, of all of them."""
    if request.types is None:
        return [(None, *first) for first in heads.of_all(tx) if first[1] >= PARKED]
    return [*heads.of_parked(tx, request.types)]


def _types(request: ClaimRequest) -> str | None:
    return None if request.types is None else json.dumps(sorted(request.types))


def _hands_out(own: paces.QueueSettings, lane: int) -> bool:
    """Whether jobs of a lane may be handed out: neither those of a paused queue nor those that a pace governs."""
    return own is not None and not (isinstance(own, paces.PacedQueue) and own.holds(lane))


def _park(tx: Transaction, ready: Sequence[_Head], request: ClaimRequest) -> frozenset[str]:
    """Park the first rows behind these heads that are of other types, and return the types of these."""
    found: list[tuple[str, str]] = []
    for head in ready:
        if head.type is None:
            what = (head.queue, head.lane, head.rank, tx.wall, PARKED_AT_ONCE, _types(request))
            found += tx.db.execute(SQL["park"], what)
    return _note_parked(tx, found)


def _note_parked(tx: Transaction, parked: Sequence[tuple[str, str]]) -> frozenset[str]:
    tx.db.executemany(SQL["note_parked"], [(type, queue, tx.wall) for type, queue in sorted(set(parked))])
    return frozenset(type for type, _ in parked)


def _choose(tx: Transaction, ready: Sequence[_Head], limit: int) -> list[int]:
    """The row ids of the first `limit` ready rows. All are behind the first `limit` heads, so only these are scanned."""
    scans = [_scan(tx, head, limit) for head in ready[:limit]]
    merged = heapq.merge(*scans) if len(scans) > 1 else iter(scans[0] if scans else ())
    return [rowid for _, _, rowid in islice(merged, limit)]


def _scan(tx: Transaction, head: _Head, limit: int) -> Iterator[_Place]:
    what = (head.queue, head.lane, head.rank, tx.wall, limit)
    cursor = (
        tx.db.execute(SQL["claim_scan"], what)
        if head.type is None
        else tx.db.execute(SQL["parked_scan"], (head.type, *what))
    )
    return ((head.turn, due_at + head.offset, rowid) for rowid, due_at in cursor)


def _take(tx: Transaction, chosen: list[int], request: ClaimRequest) -> tuple[list[ClaimedJob], list[int]]:
    """Lease the chosen rows, and return those of other types. Expires those whose time passed before they were ever
    started."""
    if not chosen:
        return [], []
    types = _types(request)
    what = {
        "status": Status.PROCESSING.value,
        "worker_id": request.worker_id,
        "until": tx.boot + span_ms(request.lease),
        "wall": tx.wall,
        "chosen": json.dumps(chosen),
        "types": types,
        "claim_id": request.claim_id,
        "resumed": changes.RESUMED,
    }
    taken = {row[0]: row for row in tx.db.execute(SQL["claim_take"], what)}
    left, strange = [rowid for rowid in chosen if rowid not in taken], list[int]()
    if left and types is not None:
        strange = [rowid for (rowid,) in tx.db.execute(SQL["of_other_types"], (json.dumps(left), types))]
    if expired := [rowid for rowid in left if rowid not in strange]:
        housekeeping.expire_chosen(tx, expired)
    return [rows.claimed_job(taken[rowid]) for rowid in chosen if rowid in taken], strange


def claimed(tx: Transaction, worker_id: str, claim_id: str) -> list[ClaimedJob]:
    found = tx.db.execute(SQL["claimed"], {"worker_id": worker_id, "claim_id": claim_id, "boot": tx.lease_clock})
    return [rows.claimed_job(row) for row in found]


def _lapsed(tx: Transaction) -> list[LapsedJob]:
    """The jobs whose lease has lapsed, except those whose workers may have been unable to renew until just now."""
    found = list(tx.db.execute(SQL["lapsed"], (tx.lease_clock, LAPSED_AT_ONCE)))
    if found and tx.stall.heeds_others(tx.boot):
        found = list(tx.db.execute(SQL["lapsed"], (tx.stall.lease_clock(tx.boot), LAPSED_AT_ONCE)))
    return [rows.lapsed_job(row) for row in found]


def _next_in(tx: Transaction, firsts: Sequence[_Head], exhausted: Sequence[_Head], looks: Sequence[int]) -> timedelta | None:
    """The time until the next due time, lapse or release of a pace, also behind heads whose ready rows were all taken.

    Ready jobs that were not taken do not count: they wait for a free slot, not for a time.
    """
    waits = [max(look * 1000 - tx.wall_us, 0) for look in looks]
    waits += [head.due_at * 1000 - tx.wall_us for head in firsts if head.due_at > tx.wall]
    for head in exhausted:
        behind = (head.queue, head.lane, head.rank, tx.wall)
        next_due = ("next_due", behind) if head.type is None else ("parked_next_due", (head.type, *behind))
        waits += [due_at * 1000 - tx.wall_us for (due_at,) in tx.db.execute(SQL[next_due[0]], next_due[1])]
    spared = tx.stall.spared_until(tx.boot) or 0
    waits += [max(lease_until - tx.boot, spared - tx.boot, 0) * 1000 for (lease_until,) in tx.db.execute(SQL["next_lapse"])]
    return timedelta(microseconds=min(waits)) if waits else None


# Renewals and reports


def renew(tx: Transaction, reports: Sequence[Report], lease: int) -> LeaseStatus:
    tx.stall.renewed_every = max(lease // RENEWALS_IN_A_LEASE, LEAST_SPARING)
    for report in reports:
        values = {"until": tx.boot + lease, "wall": tx.wall, "ran": report.ran // MILLISECOND, **_where(tx, report)}
        tx.db.execute(SQL["renew"], values)
        renewed = tx.db.changes() > 0
        if renewed or (report.log and _is_settled(tx, report)):
            _log(tx, report)  # also after a settlement: no other report has these lines
        trace(tx, report.lease, "renew", accepted=renewed)
    return lease_status(tx, [report.lease for report in reports])


def _is_settled(tx: Transaction, report: Report) -> bool:
    """Whether this run was settled and the job has not been claimed since."""
    return tx.db.execute(SQL["settled_under"], (rows.id_bytes(report.lease.id), report.lease.token)).fetchone() is not None


def lease_status(tx: Transaction, leases: Sequence[Lease]) -> LeaseStatus:
    ids = _encode([lease.id.replace("-", "") for lease in leases]).decode()
    found = tx.db.execute(SQL["lease_status"], (ids, tx.lease_clock))
    return status_of(leases, ((rows.id_text(id), token, cancel) for id, token, cancel in found))


def leased(tx: Transaction, worker_id: str, leases: Sequence[Lease] | None) -> list[LeasedJob]:
    what = {"worker_id": worker_id, "boot": tx.lease_clock}
    if leases is None:
        return [rows.leased_job(row, tx.wall) for row in tx.db.execute(SQL["leased"], what)]
    ids = _encode([lease.id.replace("-", "") for lease in leases]).decode()
    found = [rows.leased_job(row, tx.wall) for row in tx.db.execute(SQL["leased_of"], what | {"ids": ids})]
    return [job for job in found if job.lease in set(leases)]


# Settlements


def settle(tx: Transaction, settlements: Sequence[Settlement], statistics: Writer) -> list[Status | None]:
    counted = Counted()
    done = [s for s in settlements if s.verdict.status is Status.COMPLETED]
    completed = _complete(tx, done, counted) if done else set[Lease]()
    answers = [
        (Status.COMPLETED if s.report.lease in completed else None)
        if s.verdict.status is Status.COMPLETED
        else _settle(tx, s, counted)
        for s in settlements
    ]
    statistics.write(tx, counted)
    if tx.stamps.audited:
        _trace(tx, settlements, answers)
    return answers


def _trace(tx: Transaction, settlements: Sequence[Settlement], answers: Sequence[Status | None]) -> None:
    for settlement, answer in zip(settlements, answers, strict=True):
        trace(tx, settlement.report.lease, "lapse" if settlement.lapsed else "settle", accepted=answer is not None)


def _complete(tx: Transaction, done: Sequence[Settlement], counted: Counted) -> set[Lease]:
    """Record successes in one statement, and return the leases that were still valid."""
    reports: dict[tuple[bytes | None, int], Report] = {}
    packed = []
    for settlement in done:
        report, result = settlement.report, settlement.verdict.result
        id, token = rows.id_bytes(report.lease.id), report.lease.token
        reports[id, token] = report
        started_at, text = tx.wall - report.ran // MILLISECOND, None if result is None else result.decode()
        packed.append((id and id.hex(), token, text, started_at, report.progress, report.message))
    what = {
        "status": Status.COMPLETED.value,
        "wall": tx.wall,
        "boot": tx.lease_clock,
        "done": _encode(packed).decode(),
        "settled": tx.settled(),
    }
    ours = set[Lease]()
    with_webhook = list[bytes]()
    by_lane = defaultdict[tuple[str, str, int], list[tuple[int, int]]](list)
    for id, token, hooked, queue, type, lane, due_at, started_at in list(tx.db.execute(SQL["complete"], what)):
        if (reported := reports.get((id, token))) is not None:
            ours.add(reported.lease)
            by_lane[queue, type, lane].append(((started_at - due_at) * 1000, reported.ran // MICROSECOND))
        if hooked:
            with_webhook.append(id)
    for (queue, type, lane), times in by_lane.items():
        counted[queue, type].add_successes(lane, times)
    if with_webhook:
        record_deliveries(tx, with_webhook)
    for settlement in done:
        if settlement.report.log and settlement.report.lease in ours:
            _log(tx, settlement.report)
    if ours:
        tx.wake(Topic.ENDED)
    return ours


def _settle(tx: Transaction, settlement: Settlement, counted: Counted) -> Status | None:
    verdict = settlement.verdict
    before = tx.db.execute(SQL["claimed_as"], (rows.id_bytes(settlement.report.lease.id),)).fetchone()
    moved = _apply(tx, settlement, verdict)
    if moved is None:
        verdict = verdict.after_cancel_request()
        moved = _apply(tx, settlement, verdict)
        if moved is None:
            return None
    _count(counted, settlement, verdict, moved, before)
    _log(tx, settlement.report)
    if verdict.counts:
        id = rows.id_bytes(settlement.report.lease.id)
        tx.db.execute(SQL["record_attempt"], (tx.wall, verdict.error, verdict.traceback, id))
    if verdict.status.ended:
        tx.wake(Topic.ENDED)
        if moved.hooked:
            record_deliveries(tx, [moved.id])
    return verdict.status


class _Moved(NamedTuple):
    """A job that got a verdict: whether it has a webhook, its queue, and when the run began if that was an attempt."""

    id: bytes
    hooked: bool
    queue: str
    started_at: int | None


def _count(counted: Counted, settlement: Settlement, verdict: Verdict, moved: _Moved, before: Any) -> None:
    """Count a run; `before` are the type of its job, and the lane and the due time that it was claimed with."""
    type, lane, due_at = before
    tally = counted[moved.queue, type]
    tally.add_run(verdict.status, counts=verdict.counts)
    if verdict.counts and not settlement.lapsed and moved.started_at is not None:
        tally.add_times(lane, (moved.started_at - due_at) * 1000, settlement.report.ran // MICROSECOND)


def _apply(tx: Transaction, settlement: Settlement, verdict: Verdict) -> _Moved | None:
    """Write the verdict; None if the lease is gone, or if the verdict would ignore a request to cancel."""
    report = settlement.report
    row = tx.db.execute(
        SQL["settle"],
        {
            "status": verdict.status.value,
            "completed_at": tx.wall if verdict.status.ended else None,
            "result": None if verdict.result is None else verdict.result.decode(),
            "error": verdict.error,
            "due_at": None if verdict.delay is None else tx.wall + span_ms(verdict.delay),
            "lane": None if verdict.lane is None else verdict.lane.value,
            "credit": verdict.credit,
            "retry": verdict.retry,
            "stray": int(verdict.no_handler),
            "started_at": None if settlement.lapsed else tx.wall - report.ran // MILLISECOND,
            "lapsed": int(settlement.lapsed),
            "moved": tx.next_move() if verdict.status.waiting else None,
            "settled": tx.settled() if verdict.counts or verdict.status.ended else None,
            "stands": int(verdict.stands),
            **_where(tx, report),
        },
    ).fetchone()
    id = rows.id_bytes(report.lease.id)
    if row is None or id is None:
        return None
    queue, lane, rank, due_at, hooked, started_at = row
    if verdict.status.waiting:
        changes.wake_for(tx, id, queue, lane, rank, due_at)
    return _Moved(id, bool(hooked), queue, started_at)


def _where(tx: Transaction, report: Report) -> dict[str, Any]:
    return {
        "id": rows.id_bytes(report.lease.id),
        "token": report.lease.token,
        "boot": tx.lease_clock,
        "progress": report.progress,
        "message": report.message,
    }


def _log(tx: Transaction, report: Report) -> None:
    if report.log:
        id, started = rows.id_bytes(report.lease.id), tx.wall - report.ran // MILLISECOND
        tx.db.executemany(SQL["log"], [(id, started + after // MILLISECOND, line) for after, line in report.log])
