"""Renewals, reports and settlements of the jobs that workers run. Each write requires the token of the lease."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...core.spans import MILLISECOND, span_ms
from ...core.states import Status
from ...core.verdict import Verdict
from ...store.jobs import Lease, LeaseStatus, Report, Settlement, Topic
from . import rows, webhooks
from .connections import SQL
from .diagnostics import trace
from .locking import LEAST_SPARING
from .transactions import Transaction

_encode = msgspec.json.encode
_Held = tuple[bytes | None, int]  # an id and the token of a lease on it


def renew(tx: Transaction, reports: Sequence[Report], lease: int) -> LeaseStatus:
    tx.stall.renewed_every = max(lease // 3, LEAST_SPARING)
    for report in reports:
        held = {"until": tx.boot + lease, "wall": tx.wall, "ran": report.ran // MILLISECOND, **_where(tx, report)}
        tx.db.execute(SQL["renew"], held)
        renewed = tx.db.changes() > 0
        if renewed or (report.log and _is_settled(tx, report)):
            _log(tx, report)  # also after a settlement: no other report has these lines
        trace(tx, report.lease, "renew", accepted=renewed)
    return listen(tx, [report.lease for report in reports])


def _is_settled(tx: Transaction, report: Report) -> bool:
    """Whether this run was settled and the job has not been claimed since."""
    return tx.db.execute(SQL["settled_under"], (rows.id_bytes(report.lease.id), report.lease.token)).fetchone() is not None


def listen(tx: Transaction, leases: Sequence[Lease]) -> LeaseStatus:
    ids = _encode([lease.id.replace("-", "") for lease in leases]).decode()
    held = {(rows.id_text(id), token): wished for id, token, wished in tx.db.execute(SQL["listen"], (ids, tx.lease_clock))}
    return LeaseStatus(
        lost=frozenset(lease for lease in leases if (lease.id, lease.token) not in held),
        wished=frozenset(lease for lease in leases if held.get((lease.id, lease.token))),
    )


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Status | None]:
    done = [s for s in settlements if s.verdict.status is Status.COMPLETED]
    completed = _complete(tx, done) if done else frozenset()
    answers = [
        (Status.COMPLETED if s.report.lease in completed else None)
        if s.verdict.status is Status.COMPLETED
        else _settle(tx, s)
        for s in settlements
    ]
    if tx.stamps.audited:
        _trace(tx, settlements, answers)
    return answers


def _trace(tx: Transaction, settlements: Sequence[Settlement], answers: Sequence[Status | None]) -> None:
    for settlement, answer in zip(settlements, answers, strict=True):
        trace(tx, settlement.report.lease, "lapse" if settlement.lapsed else "settle", accepted=answer is not None)


def _complete(tx: Transaction, done: Sequence[Settlement]) -> frozenset[Lease]:
    """Record successes in one statement, and return the leases that still held."""
    held: dict[_Held, Lease] = {}
    packed = [_completion(tx, s, held) for s in done]
    what = {
        "status": Status.COMPLETED.value,
        "wall": tx.wall,
        "boot": tx.lease_clock,
        "done": _encode(packed).decode(),
    }
    moved = list(tx.db.execute(SQL["complete"], what))
    ours = frozenset([lease for id, token, _ in moved if (lease := held.get((id, token))) is not None])
    if with_webhook := [id for id, _, hooked in moved if hooked]:
        webhooks.record_deliveries(tx, with_webhook)
    for settlement in done:
        if settlement.report.log and settlement.report.lease in ours:
            _log(tx, settlement.report)
    if ours:
        tx.wake(Topic.ENDED)
    return ours


def _completion(tx: Transaction, settlement: Settlement, held: dict[_Held, Lease]) -> tuple[Any, ...]:
    """The parameters of a success; adds to `held` under which id and token the statement returns its lease."""
    report, result = settlement.report, settlement.verdict.result
    id = rows.id_bytes(report.lease.id)
    held[id, report.lease.token] = report.lease
    return (
        None if id is None else id.hex(),
        report.lease.token,
        None if result is None else result.decode(),
        tx.wall - report.ran // MILLISECOND,
        report.progress,
        report.message,
    )


def _settle(tx: Transaction, settlement: Settlement) -> Status | None:
    verdict = settlement.verdict
    moved = _apply(tx, settlement, verdict)
    if moved is None:
        verdict = verdict.after_cancel_request()
        moved = _apply(tx, settlement, verdict)
        if moved is None:
            return None
    _log(tx, settlement.report)
    if verdict.counts:
        id = rows.id_bytes(settlement.report.lease.id)
        tx.db.execute(SQL["record_attempt"], (tx.wall, verdict.error, verdict.traceback, id))
    if verdict.status.ended:
        tx.wake(Topic.ENDED)
        if moved.hooked:
            webhooks.record_deliveries(tx, [moved.id])
    return verdict.status


class _Moved(NamedTuple):
    """A job that got a verdict, and whether it has a webhook."""

    id: bytes
    hooked: bool


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
            "credit": int(not verdict.counts),
            "retry": int(verdict.status is Status.RETRYING and verdict.counts),
            "stray": int(verdict.no_handler),
            "started_at": None if settlement.lapsed else tx.wall - report.ran // MILLISECOND,
            "lapsed": int(settlement.lapsed),
            "moved": tx.next_move() if verdict.status.waiting else None,
            "stands": int(verdict.stands),
            **_where(tx, report),
        },
    ).fetchone()
    id = rows.id_bytes(report.lease.id)
    if row is None or id is None:
        return None
    *place, hooked = row
    if verdict.status.waiting:
        wake_for(tx, id, *place)
    return _Moved(id, bool(hooked))


def wake_for(tx: Transaction, id: bytes | None, queue: str, lane: int, rank: int, due_at: int) -> None:
    """Wake waiters if a job that waits again is ready, or due before all others of its queue, lane and rank."""
    if due_at <= tx.wall or not tx.db.execute(SQL["earlier"], (queue, lane, rank, due_at, id)).fetchone():
        tx.wake(Topic.READY)


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
