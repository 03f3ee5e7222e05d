"""Housekeeping on SQLite: it deletes old jobs, expires waiting ones, and fails those of types that no worker knows."""

import json
from collections.abc import Sequence
from datetime import timedelta

from ....core.retention import Retention
from ....core.spans import span_ms
from ....core.states import Status
from ....core.verdict import EXPIRED, UNKNOWN_TYPE, Verdict
from ....core.workers import ParkedType, failing_until, fails_at, judge
from ....store.jobs import HousekeepingResult, Topic
from ...sql import constants
from ...sql.retention import OVERDUE, RetentionLimits
from .. import registry, rows
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from . import heads
from .changes import remove_all
from .deliveries import record_deliveries

FILLED = 20_000  # rows of jobs that one call searches for tags


def purge(tx: Transaction, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    removed = 0
    for name in [name for (name,) in tx.db.execute(SQL["queue_names"])] if queue is None else [queue]:
        removed += remove_ended(tx, name, status, tx.wall - older_than, limit - removed)
    forget_keys(tx, limit)
    return removed


def housekeep(tx: Transaction, retention: Retention, limit: int) -> HousekeepingResult:
    expired = expire(tx, limit)
    failed, unknown = fail_unknown(tx, max(limit - len(expired), 1))
    removed, over_at = _apply_retention(tx, retention, max(limit - len(expired) - failed, 1))
    forget_keys(tx, limit)
    tx.db.execute(SQL["forget_silent"], (tx.boot - constants.SILENT,))
    fill_tags(tx)
    moments = [*over_at, *unknown.values(), *(at for (at,) in tx.db.execute(SQL["next_expiry"]))]
    next_in = timedelta(milliseconds=max(min(moments) - tx.wall, 0)) if moments else None
    return HousekeepingResult(tuple(expired), removed, next_in, failed, frozenset(unknown))


def expire(tx: Transaction, limit: int) -> list[str]:
    """Expire waiting jobs whose time has passed, and return their ids."""
    return expire_chosen(tx, [number for (number,) in tx.db.execute(SQL["expired"], (tx.wall, limit))])


def expire_chosen(tx: Transaction, numbers: Sequence[int]) -> list[str]:
    """Expire waiting jobs, given by row id, and return their ids."""
    return _end_waiting(tx, numbers, EXPIRED)


def _end_waiting(tx: Transaction, numbers: Sequence[int], verdict: Verdict) -> list[str]:
    if not numbers:
        return []
    what = (verdict.status.value, tx.wall, verdict.error, tx.settled(), json.dumps(numbers))
    ended = list(tx.db.execute(SQL["end_chosen"], what))
    tx.wake(Topic.ENDED)
    record_deliveries(tx, [id for id, hooked in ended if hooked])
    return [rows.id_text(id) for id, _ in ended]


def fail_unknown(tx: Transaction, limit: int) -> tuple[int, dict[str, int]]:
    """Fail parked jobs of types that no live worker has known for `NO_HANDLER_GRACE`. Returns how many, and when the next
    job fails of each type that no live worker knows."""
    parked = [ParkedType(*row) for row in tx.db.execute(SQL["parked_types"])]
    if not parked:
        return 0, {}
    judged = judge(parked, registry.workers(tx), tx.wall)
    tx.db.executemany(SQL["note_unknown"], [(one.unknown_since, one.type, one.queue) for one in judged.changed])
    tx.db.executemany(SQL["forget_parked"], [(one.type, one.queue) for one in judged.forgotten])
    due: list[int] = []
    next_at: dict[str, int] = {}
    for type, queue, lane, rank, due_at, _ in heads.of_parked(tx, {type for type, _ in judged.unknown}):
        if (type, queue) not in judged.unknown:
            continue
        at = fails_at(judged.unknown[type, queue], due_at)
        next_at[type] = min(at, next_at.get(type, at))
        if at <= tx.wall and len(due) < limit:
            scan = (type, queue, lane, rank, failing_until(tx.wall), limit - len(due))
            due += [number for number, _ in tx.db.execute(SQL["parked_scan"], scan)]
    _end_waiting(tx, due, UNKNOWN_TYPE)
    return len(due), next_at


def _apply_retention(tx: Transaction, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete ended jobs beyond their retention; returns how many, and when more are due."""
    limits, removed = RetentionLimits(retention, tx.db.execute(SQL["retentions"])), 0
    for queue, status, keep in limits.of(list(tx.db.execute(SQL["ended_kinds"]))):
        if keep.age is not None:
            removed += remove_ended(tx, queue, status, tx.wall - span_ms(keep.age), limit - removed)
        if keep.count is not None:
            removed += remove_beyond(tx, queue, status, keep.count, limit - removed)
        if removed >= limit:
            return removed, [OVERDUE]
    return removed, limits.over_at(tx.db.execute(SQL["ended_kinds"]))


def remove_ended(tx: Transaction, queue: str, status: Status, until: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status before `until`, the oldest first."""
    return remove_all(tx, list(tx.db.execute(SQL["purgeable"], (queue, status.value, until, limit))))


def remove_beyond(tx: Transaction, queue: str, status: Status, newest: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status, but keep the `newest` ones."""
    return remove_all(tx, list(tx.db.execute(SQL["beyond"], (queue, status.value, limit, newest))))


def forget_keys(tx: Transaction, limit: int) -> None:
    """Delete up to `limit` idempotency keys that expired."""
    tx.db.execute(SQL["purge_keys"], (tx.wall, limit))


def fill_tags(tx: Transaction) -> None:
    """Record the tags of jobs that processes of an earlier version have added, some thousands of rows at a time."""
    tx.db.execute(SQL["fill_tags"], (FILLED,))
    tx.db.execute(SQL["tags_filled"], (FILLED,))
