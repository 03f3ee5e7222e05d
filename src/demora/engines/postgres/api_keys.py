"""API keys on PostgreSQL."""

from collections.abc import Collection, Set
from datetime import timedelta

from ...core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret
from ...core.spans import from_ms, span_ms
from ...store.api_keys import KeyList, KeyLookup, SessionsLookup
from ..sql import columns
from . import rows
from .connection.connections import Session
from .database import Database


class PostgresApiKeys:
    """The API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: NewKey) -> ApiKey:
        return await self._database.write(lambda session: add_key(session, key))

    async def all(self) -> KeyList:
        return await self._database.read(list_keys)

    async def find(self, id: str) -> KeyLookup:
        return await self._database.read_quickly(lambda session: find_key(session, id))

    async def revoke(self, id: str) -> ApiKey | None:
        return await self._database.write(lambda session: revoke_key(session, id))

    async def rotate(self, secret: NewSecret) -> ApiKey | None:
        return await self._database.write(lambda session: rotate(session, secret))

    async def limit(self, id: str, limits: KeyLimits) -> ApiKey | None:
        return await self._database.write(lambda session: limit(session, id, limits))

    async def forget(self, id: str) -> bool:
        return await self._database.write_once(lambda session: forget_key(session, id))

    async def use(self, id: str, *, unless_within: timedelta) -> bool:
        return await self._database.write(lambda session: use_key(session, id, span_ms(unless_within)))

    async def name(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        return await self._database.write(lambda session: name(session, id, queues, types, limits))

    async def waiting(self, id: str, *, most: int) -> int:
        return await self._database.read(lambda session: waiting(session, id, most))

    async def open_session(self, digest: bytes, key_id: str, *, expires_in: timedelta) -> None:
        await self._database.write(lambda session: open_session(session, digest, key_id, span_ms(expires_in)))

    async def find_sessions(self, digests: Collection[bytes]) -> SessionsLookup:
        return await self._database.read_quickly(lambda session: find_sessions(session, digests))

    async def end_session(self, digest: bytes) -> bool:
        return await self._database.write_once(lambda session: end_session(session, digest))

    async def database_id(self) -> str:
        return await self._database.read(database_id)


async def add_key(session: Session, key: NewKey) -> ApiKey:
    if session.again and (made := (await find_key(session, key.id)).key) is not None and made.digest == key.digest:
        return made
    row = await session.row(
        "add_key",
        id=key.id,
        digest=key.digest,
        name=key.name,
        scopes=list(key.scopes),
        expires_in=None if key.expires_in is None else span_ms(key.expires_in),
        namespace=key.namespace,
        limits=columns.key_limits_text(key.limits),
    )
    return _key(row)


async def list_keys(session: Session) -> KeyList:
    found = await session.rows("keys")
    return KeyList([_key(row) for row in found if row["id"] is not None], from_ms(found[0]["wall"]))


async def find_key(session: Session, id: str) -> KeyLookup:
    row = await session.row("find_key", id=id)
    return KeyLookup(None if row["id"] is None else _key(row), row["any"], from_ms(row["wall"]))


async def revoke_key(session: Session, id: str) -> ApiKey | None:
    row = await session.row("revoke_key", id=id)
    return None if row is None else _key(row)


async def rotate(session: Session, secret: NewSecret) -> ApiKey | None:
    row = await session.row(
        "rotate_key",
        id=secret.id,
        digest=secret.digest,
        overlap=None if secret.overlap is None else span_ms(secret.overlap),
        expires_in=None if secret.expires_in is None else span_ms(secret.expires_in),
    )
    return None if row is None else _key(row)


async def limit(session: Session, id: str, limits: KeyLimits) -> ApiKey | None:
    row = await session.row("limit_key", id=id, limits=columns.key_limits_text(limits))
    return None if row is None else _key(row)


async def forget_key(session: Session, id: str) -> bool:
    """Delete a key, in a transaction of the caller."""
    forgotten = bool(await session.rows("forget_key", id=id))
    if forgotten:
        await session.rows("forget_names", id=id)
    return forgotten


async def use_key(session: Session, id: str, within: int) -> bool:
    return bool(await session.rows("use_key", id=id, within=within))


async def name(session: Session, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
    """Record names that a key uses, under the lock of the key. If it has too many of a kind, roll back and return it."""
    most = {NameKind.QUEUE: limits.max_queues, NameKind.TYPE: limits.max_types}
    asked = [(NameKind.QUEUE, name) for name in sorted(queues)] + [(NameKind.TYPE, name) for name in sorted(types)]
    counted = [(kind, name) for kind, name in asked if most[kind]]
    transaction = session.transaction()
    await transaction.start()
    try:
        too_many = await _name(session, id, counted, most) if await session.rows("lock_key", id=id) else None
    except BaseException:
        await transaction.rollback()
        raise
    await (transaction.commit() if too_many is None else transaction.rollback())
    return too_many


async def _name(
    session: Session, id: str, names: list[tuple[NameKind, str]], most: dict[NameKind, int | None]
) -> NameKind | None:
    kinds, texts = [kind.value for kind, _ in names], [name for _, name in names]
    new = {row["kind"] for row in await session.rows("name_for_key", id=id, kinds=kinds, names=texts)}
    counts = {row["kind"]: row["count"] for row in await session.rows("names_of_key", id=id)}
    return next((kind for kind in NameKind if kind in new and counts[kind] > (most[kind] or 0)), None)


async def waiting(session: Session, id: str, most: int) -> int:
    return int((await session.row("waiting_for_key", id=id, most=most))["count"])


async def open_session(session: Session, digest: bytes, key_id: str, life: int) -> None:
    await session.rows("open_session", digest=digest, key_id=key_id, expires_in=life)


async def find_sessions(session: Session, digests: Collection[bytes]) -> SessionsLookup:
    found = await session.rows("find_sessions", digests=list(digests))
    keys = {row["session"]: _key(row) for row in found if row["id"] is not None}
    return SessionsLookup(keys, found[0]["any"], from_ms(found[0]["wall"]))


async def end_session(session: Session, digest: bytes) -> bool:
    return bool(await session.rows("end_session", digest=digest))


async def database_id(session: Session) -> str:
    return str((await session.row("identity"))["name"])


def _key(row: rows.Row) -> ApiKey:
    return columns.api_key(row[:12], row["scopes"])
