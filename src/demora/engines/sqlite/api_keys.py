"""API keys on SQLite."""

import json
from collections.abc import Collection, Iterator, Set
from datetime import timedelta

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret
from ...core.spans import from_ms, span_ms
from ...store.api_keys import KeyList, KeyLookup, SessionsLookup
from ..sql import columns
from . import rows
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database


class SqliteApiKeys:
    """The API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: NewKey) -> ApiKey:
        return await self._database.write(lambda tx: add_key(tx, key))

    async def all(self) -> KeyList:
        return await self._database.read(list_keys)

    async def find(self, id: str) -> KeyLookup:
        return await self._database.read_quickly(lambda tx: find_key(tx, id))

    async def revoke(self, id: str) -> ApiKey | None:
        return await self._database.write(lambda tx: revoke_key(tx, id))

    async def rotate(self, secret: NewSecret) -> ApiKey | None:
        return await self._database.write(lambda tx: rotate(tx, secret))

    async def limit(self, id: str, limits: KeyLimits) -> ApiKey | None:
        return await self._database.write(lambda tx: limit(tx, id, limits))

    async def forget(self, id: str) -> bool:
        return await self._database.write(lambda tx: forget_key(tx, id))

    async def use(self, id: str, *, unless_within: timedelta) -> bool:
        return await self._database.write(lambda tx: use_key(tx, id, span_ms(unless_within)))

    async def name(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        return await self._database.write(lambda tx: name(tx, id, queues, types, limits))

    async def waiting(self, id: str, *, most: int) -> int:
        return await self._database.read(lambda tx: waiting(tx, id, most))

    async def open_session(self, digest: bytes, key_id: str, *, expires_in: timedelta) -> None:
        await self._database.write(lambda tx: open_session(tx, digest, key_id, span_ms(expires_in)))

    async def find_sessions(self, digests: Collection[bytes]) -> SessionsLookup:
        return await self._database.read_quickly(lambda tx: find_sessions(tx, digests))

    async def end_session(self, digest: bytes) -> bool:
        return await self._database.write(lambda tx: end_session(tx, digest))

    async def database_id(self) -> str:
        found: str | None = await self._database.read(database_id, weight=1)
        return await self._database.write(make_database_id) if found is None else found


def add_key(tx: Transaction, key: NewKey) -> ApiKey:
    what = {
        "id": key.id,
        "digest": key.digest,
        "name": key.name,
        "scopes": json.dumps(key.scopes),
        "wall": tx.wall,
        "expires_at": None if key.expires_in is None else tx.wall + span_ms(key.expires_in),
        "namespace": key.namespace,
        "limits": columns.key_limits_text(key.limits),
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
    if not tx.db.changes():
        return None
    tx.db.execute(SQL["end_sessions_with_secret"], {name: what[name] for name in ("id", "until", "wall")})
    return next(_found(tx, secret.id), None)


def limit(tx: Transaction, id: str, limits: KeyLimits) -> ApiKey | None:
    tx.db.execute(SQL["limit_key"], {"id": id, "limits": columns.key_limits_text(limits)})
    return next(_found(tx, id), None)


def forget_key(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_key"], {"id": id, "wall": tx.wall})
    forgotten = tx.db.changes() > 0
    if forgotten:
        tx.db.execute(SQL["forget_names"], (id,))
        tx.db.execute(SQL["forget_sessions"], (id,))
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


def open_session(tx: Transaction, digest: bytes, key_id: str, life: int) -> None:
    tx.db.execute(SQL["end_expired_sessions"], (tx.wall,))
    tx.db.execute(SQL["open_session"], (digest, key_id, tx.wall + life))


def find_sessions(tx: Transaction, digests: Collection[bytes]) -> SessionsLookup:
    wanted = json.dumps([digest.hex() for digest in digests])
    found = {row[0]: _key(row[1:]) for row in tx.db.execute(SQL["find_sessions"], (wanted, tx.wall))}
    return SessionsLookup(found, bool(found) or _any(tx), from_ms(tx.wall))


def end_session(tx: Transaction, digest: bytes) -> bool:
    tx.db.execute(SQL["end_session"], (digest,))
    return tx.db.changes() > 0


def database_id(tx: Transaction) -> str | None:
    row = tx.db.execute(SQL["database_id"]).fetchone()
    return None if row is None else str(row[0])


def make_database_id(tx: Transaction) -> str:
    tx.db.execute(SQL["make_database_id"])
    return str(database_id(tx))


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
    return columns.api_key(row, json.loads(row[3]))
