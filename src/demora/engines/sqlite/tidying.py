"""The housekeeping: what expired is cancelled, and what need not be kept goes, a small piece at a time."""

import json
from collections.abc import Sequence
from datetime import timedelta

from ...core.retention import Keep, Retention
from ...core.spans import span_ms
from ...core.states import Status
from ...core.verdict import EXPIRED
from ...store import Tidied, Topic
from . import hooks, rows, wishes
from .batches import Transaction
from .statements import SQL

SILENT = 86_400_000  # milliseconds after which a worker that said nothing is forgotten


def tidy(tx: Transaction, retention: Retention, limit: int) -> Tidied:
    expired = expire_due(tx, limit)
    removed, waits = _remove(tx, retention, max(limit - expired, 1))
    wishes.forget_keys(tx, limit)
    tx.db.execute(SQL["forget_silent"], (tx.boot - SILENT,))
    waits += [expires_at - tx.wall for (expires_at,) in tx.db.execute(SQL["next_expiry"])]
    return Tidied(expired, removed, timedelta(milliseconds=max(min(waits), 0)) if waits else None)


def expire_due(tx: Transaction, limit: int) -> int:
    """Give waiting jobs whose time has passed the verdict that they expired; answers with how many."""
    due = [number for (number,) in tx.db.execute(SQL["expired"], (tx.wall, limit))]
    expire(tx, due)
    return len(due)


def expire(tx: Transaction, numbers: Sequence[int]) -> None:
    """Give waiting jobs, by row number, the verdict that they expired."""
    if numbers:
        what = (EXPIRED.status.value, tx.wall, EXPIRED.error, json.dumps(numbers))
        expired = list(tx.db.execute(SQL["expire_chosen"], what))
        tx.wake(Topic.ENDED)
        hooks.tell(tx, [id for id, hooked in expired if hooked])


def _remove(tx: Transaction, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete what need not be kept; answers with how much, and in how many milliseconds there is more to delete."""
    own = {name: rows.retention(text).over(retention) for name, text in tx.db.execute(SQL["retentions"])}
    removed, waits = 0, []
    for queue, number, _ in list(tx.db.execute(SQL["ended_kinds"])):
        status = Status(number)
        keep = own.get(queue, retention).of(status)
        if keep is None or keep == Keep():
            continue
        if keep.age is not None:
            removed += wishes.remove_ended(tx, queue, status, tx.wall - span_ms(keep.age), limit - removed)
        if keep.count is not None:
            removed += wishes.remove_beyond(tx, queue, status, keep.count, limit - removed)
        if removed >= limit:
            return removed, [0]
        if keep.age is not None:
            oldest = tx.db.execute(SQL["oldest_end"], (queue, status.value))
            waits += [ended + span_ms(keep.age) - tx.wall for (ended,) in oldest]
    return removed, waits
