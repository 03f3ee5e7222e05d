"""API keys: made, found, revoked and forgotten, and when each was last used."""

from ...core.access import ApiKey, NewKey, Scope
from ...core.spans import from_ms, span_ms
from ...keyring import Found, Ring
from . import rows
from .connections import Session


async def add(session: Session, key: NewKey, again: bool) -> ApiKey:
    if again and (made := (await find(session, key.id)).key) is not None and made.digest == key.digest:
        return made
    row = await session.row(
        "add_key",
        id=key.id,
        digest=key.digest,
        name=key.name,
        scopes=list(key.scopes),
        expires_in=None if key.expires_in is None else span_ms(key.expires_in),
    )
    return _key(row)


async def ring(session: Session) -> Ring:
    found = await session.rows("keys")
    return Ring([_key(row) for row in found if row["id"] is not None], from_ms(found[0]["wall"]))


async def find(session: Session, id: str) -> Found:
    row = await session.row("find_key", id=id)
    return Found(None if row["id"] is None else _key(row), row["any"], from_ms(row["wall"]))


async def revoke(session: Session, id: str) -> ApiKey | None:
    row = await session.row("revoke_key", id=id)
    return None if row is None else _key(row)


async def forget(session: Session, id: str, again: bool) -> bool:
    """Delete a key; asked `again`, one that is gone counts as deleted by the call whose answer was lost."""
    forgotten = bool(await session.rows("forget_key", id=id))
    return forgotten or (again and (await find(session, id)).key is None)


async def use(session: Session, id: str, within: int) -> bool:
    return bool(await session.rows("use_key", id=id, within=within))


def _key(row: rows.Row) -> ApiKey:
    id, digest, name, scopes, created_at, *times = row[:8]
    expires_at, revoked_at, last_used_at = (None if at is None else from_ms(at) for at in times)
    return ApiKey(id, digest, name, tuple(map(Scope, scopes)), from_ms(created_at), expires_at, revoked_at, last_used_at)
