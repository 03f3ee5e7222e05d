"""What people ask of single jobs: cancel, retry, change, remove; and the purge of old ones. Guarded writes, one each."""

import json

from ...core.job import Lane
from ...core.spans import span_ms, to_ms
from ...core.states import RETRYABLE, Status
from ...store import Answer, Change, Topic
from . import rows, runs
from .batches import Transaction
from .statements import SQL


def cancel(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    if _wrote(tx, "cancel_waiting", (Status.CANCELLED.value, tx.wall, "cancelled before it started", key)):
        tx.wake(Topic.ENDED)
        return Answer(True, Status.CANCELLED)
    return Answer(_wrote(tx, "cancel_running", (tx.wall, key)), _status(tx, key))


def retry(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    again = {"status": Status.QUEUED.value, "lane": Lane.RETRY.value, "wall": tx.wall, "id": key}
    did = _wrote(tx, "retry", {**again, "from": json.dumps(sorted(RETRYABLE))})
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
    }
    changed = tx.db.execute(SQL["change"], what).fetchone()
    if changed is not None:
        runs.wake_for(tx, key, *changed)
    return Answer(changed is not None, _status(tx, key))


def remove(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    status = _status(tx, key)
    did = _wrote(tx, "remove", (key,))
    if did:
        _forget(tx, key)
    return Answer(did, status)


def purge(tx: Transaction, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    found = list(tx.db.execute(SQL["purgeable"], (status.value, tx.wall - older_than, queue, limit)))
    for (key,) in found:
        tx.db.execute(SQL["remove"], (key,))
        _forget(tx, key)
    tx.db.execute(SQL["purge_keys"], (tx.wall, limit))
    return len(found)


def _forget(tx: Transaction, key: bytes | None) -> None:
    tx.db.execute(SQL["remove_attempts"], (key,))
    tx.db.execute(SQL["remove_logs"], (key,))


def _status(tx: Transaction, key: bytes | None) -> Status | None:
    row = tx.db.execute(SQL["status"], (key,)).fetchone()
    return None if row is None else Status(row[0])


def _wrote(tx: Transaction, name: str, what: dict[str, object] | tuple[object, ...]) -> bool:
    tx.db.execute(SQL[name], what)
    return tx.db.changes() > 0
