"""Changes to jobs on request, on SQLite. Each is a guarded write."""

import json
from collections.abc import Sequence
from datetime import datetime

from ....core.action import RESUMED_TYPES
from ....core.job import PARKED, due_ms, revision
from ....core.states import RETRYABLE, Status
from ....core.verdict import CANCELLED_WAITING, RESCHEDULED_LANE, RETRIED, RETRIED_LANE, waiting_after
from ....store.jobs import Answer, Change, Topic
from .. import rows
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from .deliveries import record_deliveries

RESUMED = json.dumps(sorted(RESUMED_TYPES))


def cancel(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    what = (CANCELLED_WAITING.status.value, tx.wall, CANCELLED_WAITING.error, tx.settled(), key)
    for (hooked,) in list(tx.db.execute(SQL["cancel_waiting"], what)):
        tx.wake(Topic.ENDED)
        if hooked and key is not None:
            record_deliveries(tx, [key])
        return Answer(True, Status.CANCELLED)
    return Answer(_wrote(tx, "cancel_running", (tx.wall, key)), _status(tx, key))


def retry(tx: Transaction, id: str, at: datetime | None = None) -> Answer:
    key, due_at = rows.id_bytes(id), due_ms(at, None, tx.wall)
    again = {"status": RETRIED.value, "lane": RETRIED_LANE.value, "due_at": due_at, "id": key}
    what = {"from": json.dumps(sorted(RETRYABLE)), "resumed": RESUMED, "moved": tx.next_move()}
    did = _wrote(tx, "retry", {**again, **what})
    if did:
        tx.wake(Topic.READY)
    return Answer(did, _status(tx, key))


def restore(tx: Transaction, id: str, within: int) -> Answer:
    key = rows.id_bytes(id)
    found = tx.db.execute(SQL["attempt"], (key,)).fetchone()
    if found is None:
        return Answer(False, None)
    what: dict[str, object] = {"id": key, "error": CANCELLED_WAITING.error, "wall": tx.wall, "within": within}
    did = _wrote(tx, "restore", what | {"status": waiting_after(found[0]).value, "moved": tx.next_move()})
    if did:
        tx.wake(Topic.READY)
    return Answer(did, _status(tx, key))


def change(tx: Transaction, id: str, change: Change) -> Answer:
    key = rows.id_bytes(id)
    if change.revisions is not None:
        job = rows.get(tx, id)
        if job is not None and revision(job) not in change.revisions:
            return Answer(False, job.status)
    moves = change.at is not None or change.delay is not None
    what = {
        "id": key,
        "rank": None if change.priority is None else change.priority.value,
        "tags": None if change.tags is None else json.dumps(change.tags),
        "due_at": due_ms(change.at, change.delay, tx.wall) if moves else None,
        "lane": RESCHEDULED_LANE.value,
        "moved": tx.next_move(),
    }
    changed = tx.db.execute(SQL["change"], what).fetchone()
    if changed is not None:
        wake_for(tx, key, *changed)
    return Answer(changed is not None, _status(tx, key))


def wake_for(tx: Transaction, id: bytes | None, queue: str, lane: int, rank: int, due_at: int) -> None:
    """Wake waiters if a job that waits again is ready, or due before all others of its queue, lane and rank."""
    ready = due_at <= tx.wall or lane >= PARKED  # workers look for parked jobs by type, so none is behind another
    if ready or not tx.db.execute(SQL["earlier"], (queue, lane, rank, due_at, id)).fetchone():
        tx.wake(Topic.READY)


def remove(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    status = _status(tx, key)
    return Answer(remove_all(tx, [(key,)]) > 0, status)


def remove_all(tx: Transaction, found: Sequence[tuple[bytes | None]]) -> int:
    """Delete ended jobs, and return how many."""
    settled: list[int] = []
    for (key,) in found:
        for (number,) in list(tx.db.execute(SQL["remove"], (key,))):
            settled.append(number)
            _forget(tx, key)
    if settled:
        tx.db.execute(SQL["keep_position"], (max(settled),))
    return len(settled)


def _forget(tx: Transaction, key: bytes | None) -> None:
    tx.db.execute(SQL["remove_attempts"], (key,))
    tx.db.execute(SQL["remove_logs"], (key,))


def _status(tx: Transaction, key: bytes | None) -> Status | None:
    row = tx.db.execute(SQL["status"], (key,)).fetchone()
    return None if row is None else Status(row[0])


def _wrote(tx: Transaction, name: str, what: dict[str, object] | tuple[object, ...]) -> bool:
    tx.db.execute(SQL[name], what)
    return tx.db.changes() > 0
