"""Changes of single jobs on request, the purge of ended ones, and the housekeeping. Each is a guarded write."""

import json
from collections.abc import Sequence
from datetime import timedelta

from ...core.job import Lane
from ...core.retention import Keep, Retention
from ...core.spans import span_ms, to_ms
from ...core.states import RETRYABLE, Status
from ...core.verdict import EXPIRED
from ...store.jobs import Answer, Change, HousekeepingResult, Topic
from .. import shared_rows
from . import rows, webhooks
from .connections import SQL
from .transactions import Transaction

SILENT = 86_400_000  # milliseconds without a heartbeat after which a worker is forgotten


def cancel(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    what = (Status.CANCELLED.value, tx.wall, "cancelled before it started", key)
    for (hooked,) in list(tx.db.execute(SQL["cancel_waiting"], what)):
        tx.wake(Topic.ENDED)
        if hooked and key is not None:
            webhooks.record_deliveries(tx, [key])
        return Answer(True, Status.CANCELLED)
    return Answer(_wrote(tx, "cancel_running", (tx.wall, key)), _status(tx, key))


def retry(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    again = {"status": Status.QUEUED.value, "lane": Lane.RETRY.value, "wall": tx.wall, "id": key}
    did = _wrote(tx, "retry", {**again, "from": json.dumps(sorted(RETRYABLE)), "moved": tx.next_move()})
    if did:
        tx.wake(Topic.READY)
    return Answer(did, _status(tx, key))


def change(tx: Transaction, id: str, change: Change) -> Answer:
    key = rows.id_bytes(id)
    due_at = None if change.at is None else max(to_ms(change.at), tx.wall)
    if change.delay is not None:
        due_at = tx.wall + span_ms(change.delay)
    what = {
        "id": key,
        "rank": None if change.priority is None else change.priority.value,
        "tags": None if change.tags is None else json.dumps(change.tags),
        "due_at": due_at,
        "lane": Lane.SCHEDULED.value,
        "moved": tx.next_move(),
    }
    changed = tx.db.execute(SQL["change"], what).fetchone()
    if changed is not None:
        wake_for(tx, key, *changed)
    return Answer(changed is not None, _status(tx, key))


def wake_for(tx: Transaction, id: bytes | None, queue: str, lane: int, rank: int, due_at: int) -> None:
    """Wake waiters if a job that waits again is ready, or due before all others of its queue, lane and rank."""
    if due_at <= tx.wall or not tx.db.execute(SQL["earlier"], (queue, lane, rank, due_at, id)).fetchone():
        tx.wake(Topic.READY)


def remove(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    status = _status(tx, key)
    did = _wrote(tx, "remove", (key,))
    if did:
        _forget(tx, key)
    return Answer(did, status)


def purge(tx: Transaction, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    removed = 0
    for name in [name for (name,) in tx.db.execute(SQL["queue_names"])] if queue is None else [queue]:
        removed += remove_ended(tx, name, status, tx.wall - older_than, limit - removed)
    forget_keys(tx, limit)
    return removed


def remove_ended(tx: Transaction, queue: str, status: Status, until: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status before `until`, the oldest first."""
    return _remove_all(tx, list(tx.db.execute(SQL["purgeable"], (queue, status.value, until, limit))))


def remove_beyond(tx: Transaction, queue: str, status: Status, newest: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status, but none of the `newest` so many."""
    return _remove_all(tx, list(tx.db.execute(SQL["beyond"], (queue, status.value, limit, newest))))


def _remove_all(tx: Transaction, found: list[tuple[bytes]]) -> int:
    for (key,) in found:
        tx.db.execute(SQL["remove"], (key,))
        _forget(tx, key)
    return len(found)


def forget_keys(tx: Transaction, limit: int) -> None:
    """Delete up to `limit` idempotency keys that expired."""
    tx.db.execute(SQL["purge_keys"], (tx.wall, limit))


def _forget(tx: Transaction, key: bytes | None) -> None:
    tx.db.execute(SQL["remove_attempts"], (key,))
    tx.db.execute(SQL["remove_logs"], (key,))


def _status(tx: Transaction, key: bytes | None) -> Status | None:
    row = tx.db.execute(SQL["status"], (key,)).fetchone()
    return None if row is None else Status(row[0])


def _wrote(tx: Transaction, name: str, what: dict[str, object] | tuple[object, ...]) -> bool:
    tx.db.execute(SQL[name], what)
    return tx.db.changes() > 0


def housekeep(tx: Transaction, retention: Retention, limit: int) -> HousekeepingResult:
    expired = expire_due(tx, limit)
    removed, waits = _remove(tx, retention, max(limit - expired, 1))
    forget_keys(tx, limit)
    tx.db.execute(SQL["forget_silent"], (tx.boot - SILENT,))
    waits += [expires_at - tx.wall for (expires_at,) in tx.db.execute(SQL["next_expiry"])]
    return HousekeepingResult(expired, removed, timedelta(milliseconds=max(min(waits), 0)) if waits else None)


def expire_due(tx: Transaction, limit: int) -> int:
    """Expire waiting jobs whose time has passed, and return how many."""
    due = [number for (number,) in tx.db.execute(SQL["expired"], (tx.wall, limit))]
    expire(tx, due)
    return len(due)


def expire(tx: Transaction, numbers: Sequence[int]) -> None:
    """Expire waiting jobs, given by row id."""
    if numbers:
        what = (EXPIRED.status.value, tx.wall, EXPIRED.error, json.dumps(numbers))
        expired = list(tx.db.execute(SQL["expire_chosen"], what))
        tx.wake(Topic.ENDED)
        webhooks.record_deliveries(tx, [id for id, hooked in expired if hooked])


def _remove(tx: Transaction, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete ended jobs beyond their retention; returns how many, and the milliseconds until more are due."""
    own = {name: shared_rows.retention(text).over(retention) for name, text in tx.db.execute(SQL["retentions"])}
    removed, waits = 0, []
    for queue, number, _ in list(tx.db.execute(SQL["ended_kinds"])):
        status = Status(number)
        keep = own.get(queue, retention).of(status)
        if keep is None or keep == Keep():
            continue
        if keep.age is not None:
            removed += remove_ended(tx, queue, status, tx.wall - span_ms(keep.age), limit - removed)
        if keep.count is not None:
            removed += remove_beyond(tx, queue, status, keep.count, limit - removed)
        if removed >= limit:
            return removed, [0]
        if keep.age is not None:
            oldest = tx.db.execute(SQL["oldest_end"], (queue, status.value))
            waits += [ended + span_ms(keep.age) - tx.wall for (ended,) in oldest]
    return removed, waits
