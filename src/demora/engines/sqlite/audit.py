"""The audit on SQLite: triggers that record an event for each transition of a job, and what a checker reads."""

import json
from collections.abc import Iterator
from importlib.resources import files

import apsw

from ...store.audit import Evidence, FireFacts, JobFacts, KeyFacts, SqlEvent
from ...store.jobs import Lease
from ..sql import columns, queries
from ..sql.columns import STATUS_NAMES
from . import paces, registry, rows
from .connection.connections import SQL, has_triggers, triggers
from .connection.transactions import Transaction
from .database import Database

_TRIGGERS = queries.with_statuses((files(__package__) / "audit.sql").read_text())


class SqliteAudit:
    """What a checker reads, also while no audit is recorded."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._database.read(lambda tx: events(tx, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._database.read(lambda tx: evidence(tx, integrity=integrity))

    async def end(self) -> None:
        await self._database.write(end_audit)


def begin_audit(tx: Transaction) -> None:
    """Record an event for each transition from now on, of every process. Idempotent."""
    if "'cancel_requested'" not in triggers(tx.db):  # there are none, or they are of an earlier version
        tx.db.execute(SQL["drop_triggers"])
    tx.db.execute(_TRIGGERS)
    tx.stamps.audited = True


def end_audit(tx: Transaction) -> None:
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
        queues=[columns.queue_facts(queue) for queue in registry.queues(tx)],
        keys=[_key(row) for row in tx.db.execute(SQL["key_facts"])],
        orphans=[rows.id_text(id) for (id,) in tx.db.execute(SQL["orphan_attempts"])],
        paces=paces.facts(tx),
        fire_times=[_fire_time(row) for row in tx.db.execute(SQL["fire_facts"])],
        integrity=list(_examine(tx.db)) if integrity else None,
        events=events(tx, 0) if has_triggers(tx.db) else None,
    )


def _examine(db: apsw.Connection) -> Iterator[str]:
    for (found,) in db.execute("pragma integrity_check"):
        if found != "ok":
            yield found


def _event(row: rows.Row) -> SqlEvent:
    seq, at, boot, id, kind, wrote, old_status, status, *rest, cancel, error, expires_at, unique = row
    moved = STATUS_NAMES[old_status], STATUS_NAMES[status]
    fields: rows.Row = (
        seq,
        at,
        boot,
        rows.id_text(id),
        kind,
        wrote,
        *moved,
        *rest,
        bool(cancel),
        error,
        expires_at,
        unique,
    )
    return SqlEvent(*fields)


def _job(row: rows.Row) -> JobFacts:
    id, status, *rest, cancel, error, recorded, webhook, on_cancel, cause, lane, schedule, slot_at = row
    stands = (bool(cancel), error, tuple(json.loads(recorded)))
    hook = (bool(webhook), bool(on_cancel), None if cause is None else rows.id_text(cause))
    fields: rows.Row = (rows.id_text(id), STATUS_NAMES[status], *rest, *stands, *hook, lane, schedule, slot_at)
    return JobFacts(*fields)


def _fire_time(row: rows.Row) -> FireFacts:
    schedule, slot_at, outcome, id = row
    return FireFacts(schedule, slot_at, outcome, None if id is None else rows.id_text(id))


def _key(row: rows.Row) -> KeyFacts:
    namespace, key, id, created_at, expires_at = row
    return KeyFacts(namespace, key, rows.id_text(id), created_at, expires_at)
