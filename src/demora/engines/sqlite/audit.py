"""The audit: triggers that write an event for each transition of a job, and the reading of what they wrote."""

import json
from collections.abc import Iterator
from importlib.resources import files

import apsw

from ...audit import Evidence, JobFacts, KeyFacts, QueueFacts, SqlEvent
from ...core.states import Status
from ...store import Lease, Queue
from . import paces, rows, views
from .batches import Transaction
from .stamps import has_triggers, triggers
from .statements import SQL

_TRIGGERS = (files(__package__) / "audit.sql").read_text()
_NAMES = {status.value: status.name for status in Status} | {None: None}


def begin(tx: Transaction) -> None:
    """Write an event for each transition from now on, whichever process makes it. To begin twice is to begin once."""
    if "new.namespace" not in triggers(tx.db):  # there are none, or those of an earlier version
        tx.db.execute(SQL["drop_triggers"])
    tx.db.execute(_TRIGGERS)
    tx.stamps.audited = True


def end(tx: Transaction) -> None:
    tx.db.execute(SQL["drop_triggers"])
    tx.db.execute(SQL["end_audit"])
    tx.stamps.audited = False


def trace(tx: Transaction, lease: Lease, wrote: str, *, accepted: bool) -> None:
    """Record under which token a worker wrote, and whether the write was accepted; without an audit do nothing."""
    if tx.stamps.audited and (id := rows.id_bytes(lease.id)) is not None:
        kind = "accepted" if accepted else "stale"
        tx.db.execute(SQL["trace"], {"id": id, "kind": kind, "token": lease.token, "wrote": wrote})


def events(tx: Transaction, after: int) -> list[SqlEvent]:
    return [_event(row) for row in tx.db.execute(SQL["events"], (after,))]


def evidence(tx: Transaction, *, integrity: bool) -> Evidence:
    return Evidence(
        now=tx.wall,
        jobs=[_job(row) for row in tx.db.execute(SQL["job_facts"])],
        queues=[_queue(queue) for queue in views.queues(tx)],
        keys=[_key(row) for row in tx.db.execute(SQL["key_facts"])],
        strays=[rows.id_text(id) for (id,) in tx.db.execute(SQL["stray_attempts"])],
        paces=paces.facts(tx),
        integrity=list(_examine(tx.db)) if integrity else None,
        events=events(tx, 0) if has_triggers(tx.db) else None,
    )


def _examine(db: apsw.Connection) -> Iterator[str]:
    for (found,) in db.execute("pragma integrity_check"):
        if found != "ok":
            yield found


def _event(row: rows.Row) -> SqlEvent:
    seq, at, boot, id, kind, wrote, old_status, status, *rest, wished, error, expires_at, unique = row
    moved = _NAMES[old_status], _NAMES[status]
    fields: rows.Row = (seq, at, boot, rows.id_text(id), kind, wrote, *moved, *rest, bool(wished), error, expires_at, unique)
    return SqlEvent(*fields)


def _job(row: rows.Row) -> JobFacts:
    id, status, *rest, wished, error, recorded, webhook, on_cancel, cause, lane = row
    stands = (bool(wished), error, tuple(json.loads(recorded)))
    told = (bool(webhook), bool(on_cancel), None if cause is None else rows.id_text(cause))
    fields: rows.Row = (rows.id_text(id), _NAMES[status], *rest, *stands, *told, lane)
    return JobFacts(*fields)


def _queue(queue: Queue) -> QueueFacts:
    counts = (queue.ready, queue.delayed, queue.processing, queue.dead)
    return QueueFacts(queue.name, *counts, paused=queue.pause is not None)


def _key(row: rows.Row) -> KeyFacts:
    scope, key, id, created_at, expires_at = row
    return KeyFacts(scope, key, rows.id_text(id), created_at, expires_at)
