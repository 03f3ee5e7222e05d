"""Queues and their settings, workers and their heartbeats, API keys, and the boot of the machine that leases belong to."""

import json
from collections.abc import Iterator, Set
from datetime import timedelta

import msgspec

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret, Scope
from ...core.retention import Retention
from ...core.spans import from_ms, span_ms
from ...store.api_keys import KeyList, KeyLookup
from ...store.jobs import Queue, QueueChange, Topic, WorkerRecord
from . import rows
from .connections import SQL
from .transactions import Transaction


def note_boot(tx: Transaction, boot_id: str) -> None:
    """After a reboot no earlier worker lives, and the clock of leases starts anew: lapse every lease."""
    row = tx.db.execute(SQL["boot_id"]).fetchone()
    if row is None or row[0] != boot_id:
        tx.db.execute(SQL["lapse_all"])
        tx.db.execute(SQL["forget_workers"])
        tx.db.execute(SQL["record_boot"], (boot_id,))


def touch(tx: Transaction) -> None:
    """Write a row without meaning, to find out whether writes succeed."""
    tx.db.execute(SQL["touch"], (str(tx.wall_us),))


def set_queue(tx: Transaction, name: str, change: QueueChange) -> Queue:
    before = [rows.queue(row) for row in tx.db.execute(SQL["queue"], (name,))]
    own = change.retention and change.retention.over(before[0].retention if before else Retention())
    what = {
        "name": name,
        "step": None if change.step is None else span_ms(change.step),
        "strict": None if change.strict is None else int(change.strict),
        "head_start": None if change.head_start is None else span_ms(change.head_start),
        "paused": None if change.paused is None else int(change.paused),
        "reason": change.reason,
        "by": change.by,
        "retention": own and msgspec.json.encode(own).decode(),
        "webhook_url": change.webhook_url,
        "wall": tx.wall,
    }
    tx.db.execute(SQL["set_queue"], what)
    tx.wake(Topic.READY)
    return next(rows.queue(row) for row in tx.db.execute(SQL["queue"], (name,)))


def heartbeat(tx: Transaction, worker: WorkerRecord) -> None:
    what = {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "slots": worker.slots,
        "queues": json.dumps(worker.queues),
        "types": json.dumps(worker.types),
        "wall": tx.wall,
        "boot": tx.boot,
    }
    tx.db.execute(SQL["heartbeat"], what)


def retire(tx: Transaction, worker_id: str) -> None:
    tx.db.execute(SQL["retire"], (worker_id,))


def workers(tx: Transaction) -> list[WorkerRecord]:
    return [_worker(row, tx.boot) for row in tx.db.execute(SQL["workers"])]


def _worker(row: rows.Row, boot: int) -> WorkerRecord:
    id, host, pid, slots, queues, types, started_at, heartbeat_at = row
    return WorkerRecord(
        id=id,
        host=host,
        pid=pid,
        slots=slots,
        queues=tuple(json.loads(queues)),
        types=tuple(json.loads(types)),
        started_at=from_ms(started_at),
        heartbeat_ago=timedelta(milliseconds=max(boot - heartbeat_at, 0)),
    )


# API keys


def add_key(tx: Transaction, key: NewKey) -> ApiKey:
    what = {
        "id": key.id,
        "digest": key.digest,
        "name": key.name,
        "scopes": json.dumps(key.scopes),
        "wall": tx.wall,
        "expires_at": None if key.expires_in is None else tx.wall + span_ms(key.expires_in),
        "namespace": key.namespace,
        "limits": _limits_text(key.limits),
    }
    tx.db.execute(SQL["add_key"], what)
    return next(_found(tx, key.id))


def list_keys(tx: Transaction) -> KeyList:
    return KeyList([_key(row) for row in tx.db.execute(SQL["keys"])], from_ms(tx.wall))


def find_key(tx: Transaction, id: str) -> KeyLookup:
    key = next(_found(tx, id), None)
    return KeyLookup(key, key is not None or _any(tx), from_ms(tx.wall))


def revoke_key(tx: Transaction, id: str) -> ApiKey | None:
    tx.db.execute(SQL["revoke_key"], {"id": id, "wall": tx.wall})
    return next(_found(tx, id), None)


def rotate(tx: Transaction, secret: NewSecret) -> ApiKey | None:
    what = {
        "id": secret.id,
        "digest": secret.digest,
        "until": None if secret.overlap is None else tx.wall + span_ms(secret.overlap),
        "expires_at": None if secret.expires_in is None else tx.wall + span_ms(secret.expires_in),
        "wall": tx.wall,
    }
    tx.db.execute(SQL["rotate_key"], what)
    return next(_found(tx, secret.id), None) if tx.db.changes() else None


def limit(tx: Transaction, id: str, limits: KeyLimits) -> ApiKey | None:
    tx.db.execute(SQL["limit_key"], {"id": id, "limits": _limits_text(limits)})
    return next(_found(tx, id), None)


def forget_key(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_key"], {"id": id, "wall": tx.wall})
    forgotten = tx.db.changes() > 0
    if forgotten:
        tx.db.execute(SQL["forget_names"], (id,))
    return forgotten


def use_key(tx: Transaction, id: str, within: int) -> bool:
    tx.db.execute(SQL["use_key"], {"id": id, "wall": tx.wall, "within": within})
    return tx.db.changes() > 0


def name(tx: Transaction, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
    """Record names that a key uses. If it then has too many of a kind, roll back to the savepoint and return that kind."""
    if not tx.db.execute(SQL["is_key"], (id,)).fetchone():
        return None
    tx.db.execute("savepoint names")
    too_many = next(
        (
            kind
            for kind, names, most in (
                (NameKind.QUEUE, queues, limits.max_queues),
                (NameKind.TYPE, types, limits.max_types),
            )
            if most and _name(tx, id, kind, names) and _names(tx, id, kind) > most
        ),
        None,
    )
    if too_many is not None:
        tx.db.execute("rollback to names")
    tx.db.execute("release names")
    return too_many


def waiting(tx: Transaction, id: str, most: int) -> int:
    [(count,)] = tx.db.execute(SQL["waiting_for_key"], (id, most))
    return int(count)


def _name(tx: Transaction, id: str, kind: NameKind, names: Set[str]) -> int:
    """Record names, and return how many are new."""
    before = tx.db.total_changes()
    tx.db.executemany(SQL["name_for_key"], [(id, kind.value, name) for name in sorted(names)])
    return tx.db.total_changes() - before


def _names(tx: Transaction, id: str, kind: NameKind) -> int:
    [(count,)] = tx.db.execute(SQL["names_of_key"], (id, kind.value))
    return int(count)


def _found(tx: Transaction, id: str) -> Iterator[ApiKey]:
    return (_key(row) for row in tx.db.execute(SQL["find_key"], (id,)).fetchall())


def _any(tx: Transaction) -> bool:
    return any(found for (found,) in tx.db.execute(SQL["any_key"]).fetchall())


def _key(row: rows.Row) -> ApiKey:
    id, digest, name, scopes, created_at, *times, namespace, limits, former_digest, former_until = row
    expires_at, revoked_at, last_used_at = (None if at is None else from_ms(at) for at in times)
    allowed = tuple(map(Scope, json.loads(scopes)))
    return ApiKey(
        id,
        digest,
        name,
        allowed,
        from_ms(created_at),
        expires_at,
        revoked_at,
        last_used_at,
        namespace,
        KeyLimits() if limits is None else msgspec.json.decode(limits, type=KeyLimits),
        former_digest,
        None if former_until is None else from_ms(former_until),
    )


def _limits_text(limits: KeyLimits) -> str | None:
    return None if limits == KeyLimits() else msgspec.json.encode(limits).decode()
