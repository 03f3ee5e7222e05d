"""API keys: made, found, revoked and forgotten, and when each was last used."""

import json
from collections.abc import Iterator

from ...core.access import ApiKey, NewKey, Scope
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


def forget(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_key"], {"id": id, "wall": tx.wall})
    return tx.db.changes() > 0


def use(tx: Transaction, id: str, within: int) -> bool:
    tx.db.execute(SQL["use_key"], {"id": id, "wall": tx.wall, "within": within})
    return tx.db.changes() > 0


def _found(tx: Transaction, id: str) -> Iterator[ApiKey]:
    return (_key(row) for row in tx.db.execute(SQL["find_key"], (id,)).fetchall())


def _any(tx: Transaction) -> bool:
    return any(found for (found,) in tx.db.execute(SQL["any_key"]).fetchall())


def _key(row: rows.Row) -> ApiKey:
    id, digest, name, scopes, created_at, *times = row
    expires_at, revoked_at, last_used_at = (None if at is None else from_ms(at) for at in times)
    allowed = tuple(map(Scope, json.loads(scopes)))
    return ApiKey(id, digest, name, allowed, from_ms(created_at), expires_at, revoked_at, last_used_at)
