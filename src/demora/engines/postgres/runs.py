"""Renewals, reports and settlements of the jobs that workers run. Each write requires the token of the lease."""

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.spans import MILLISECOND, span_ms
from ...core.states import Status
from ...store.jobs import Lease, LeaseStatus, Report, Settlement, Topic
from . import rows, webhooks
from .connections import Session


async def renew(session: Session, reports: Sequence[Report], lease: int) -> LeaseStatus:
    if not reports:
        return LeaseStatus(frozenset(), frozenset())
    logging = [report for report in reports if report.log]
    if session.again and logging:
        logged = await _logged(session, logging)
        logging = [report for report in logging if rows.id_key(report.lease.id) not in logged]
    held = await session.rows("renew", lease=lease, **_reports(reports), **_logs(logging))
    return _lease_status([report.lease for report in reports], held)


async def _logged(session: Session, reports: Sequence[Report]) -> set[str]:
    """The jobs whose log lines the first try recorded."""
    lines = [(rows.id_key(report.lease.id), rows.text(report.log[-1][1])) for report in reports]
    found = await session.rows("logged", ids=[id for id, _ in lines], lines=[line for _, line in lines])
    return {str(id) for (id,) in found}


async def listen(session: Session, leases: Sequence[Lease]) -> LeaseStatus:
    return _lease_status(leases, await session.rows("listen", ids=[rows.id_key(lease.id) for lease in leases]))


def _lease_status(leases: Sequence[Lease], rows: Sequence[Any]) -> LeaseStatus:
    held = {(str(id), token): wished for id, token, wished in rows}
    return LeaseStatus(
        lost=frozenset(lease for lease in leases if (lease.id, lease.token) not in held),
        wished=frozenset(lease for lease in leases if held.get((lease.id, lease.token))),
    )


async def settle(session: Session, settlements: Sequence[Settlement]) -> list[Status | None]:
    """Record verdicts in one statement. On a second try (`session.again`) the verdicts that are on record count as ours."""
    known = await _settled(session, settlements) if session.again else {}
    left = [s for s in settlements if s.report.lease not in known]
    statuses, put_off = await _record(session, left, with_deliveries=False) if left else ({}, [])
    if put_off:
        async with webhooks.with_deliveries(session) as ended:
            with_webhook, _ = await _record(session, put_off, with_deliveries=True)
            ended += [lease.id for lease, status in with_webhook.items() if status.ended]
        statuses |= with_webhook
    if known:
        session.topics |= {Topic.ENDED, Topic.READY}
    return [known.get(s.report.lease) or statuses.get(s.report.lease) for s in settlements]


async def _record(
    session: Session, settlements: Sequence[Settlement], *, with_deliveries: bool
) -> tuple[dict[Lease, Status], list[Settlement]]:
    """Record verdicts. Returns the new statuses, and the settlements put off because the job ends and has a webhook."""
    found = await session.rows("settle", with_deliveries=with_deliveries, **_settlements(settlements))
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
        "credits": [int(not v.counts) for v in verdicts],
        "retries": [int(v.status is Status.RETRYING and v.counts) for v in verdicts],
        "strays": [v.no_handler for v in verdicts],
        "cancelled": Status.CANCELLED.value,
        "completed": Status.COMPLETED.value,
    }
