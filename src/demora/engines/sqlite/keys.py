"""API keys: made, found, revoked and forgotten, and when each was last used."""

import json
from collections.abc import Iterator, Set

import msgspec

from ...core.access import ApiKey, NewKey, NewSecret, Scope
from ...core.keylimits import KeyLimits, NameKind
from ...core.spans import from_ms, span_ms
from ...keyring import Found, Ring
from . import rows
from .batches import Transaction
from .statements import SQL


def add(tx: Transaction, key: NewKey) -> ApiKey:
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


def ring(tx: Transaction) -> Ring:
    return Ring([_key(row) for row in tx.db.execute(SQL["keys"])], from_ms(tx.wall))


def find(tx: Transaction, id: str) -> Found:
    key = next(_found(tx, id), None)
    return Found(key, key is not None or _any(tx), from_ms(tx.wall))


def revoke(tx: Transaction, id: str) -> ApiKey | None:
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


def forget(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_key"], {"id": id, "wall": tx.wall})
    forgotten = tx.db.changes() > 0
    if forgotten:
        tx.db.execute(SQL["forget_names"], (id,))
    return forgotten


def use(tx: Transaction, id: str, within: int) -> bool:
    tx.db.execute(SQL["use_key"], {"id": id, "wall": tx.wall, "within": within})
    return tx.db.changes() > 0


def name(tx: Transaction, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
    """Record names; what is too much is taken back with the savepoint."""
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
    """Record names; answers with how many are new."""
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
