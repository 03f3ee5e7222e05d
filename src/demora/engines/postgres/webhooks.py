"""Webhooks on PostgreSQL: the deliveries of a job, the secrets that sign them, and disabled URLs."""

from datetime import timedelta
from typing import Any

from ...core.job import Job
from ...core.outbound.webhook import Secret
from ...core.spans import from_ms, span_ms
from ...store.webhooks import FIRST_SECRET, Disabled, Signing, StoredSecret
from ..sql import columns
from . import rows
from .connection.connections import Session
from .database import Database

_SECRETS = "the secrets of webhooks"  # the lock of those that add one: each sees those that the others have added


class PostgresWebhooks:
    """The deliveries of webhooks, the secrets that sign them, and disabled URLs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deliveries(self, cause: str) -> list[Job]:
        return await self._database.read(lambda session: deliveries(session, cause))

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        return await self._database.write_once(lambda session: add_secret(session, id, secret, others_end_in))

    async def ensure_secret(self, secret: Secret) -> StoredSecret | None:
        return await self._database.write_once(lambda session: ensure_secret(session, secret))

    async def forget_secret(self, id: str) -> bool:
        return await self._database.write_once(lambda session: forget_secret(session, id))

    async def signing(self, url: str = "") -> Signing:
        return await self._database.read(lambda session: signing(session, url))

    async def disable(self, url: str, reason: str) -> None:
        await self._database.write(lambda session: disable(session, url, reason))

    async def enable(self, url: str) -> bool:
        return await self._database.write_once(lambda session: enable(session, url))

    async def disabled(self) -> list[Disabled]:
        return await self._database.read(disabled)


async def deliveries(session: Session, cause: str) -> list[Job]:
    key = rows.id_key(cause)
    return [] if key is None else [rows.whole_job(row) for row in await session.rows("deliveries", cause=key)]


async def add_secret(session: Session, id: str, secret: Secret, others_end_in: timedelta | None) -> StoredSecret:
    """Add a secret, in a transaction of the caller."""
    await session.rows("only_one", what=_SECRETS)
    end = None if others_end_in is None else span_ms(others_end_in)
    row = await session.row("add_secret", id=id, secret=secret.key, others_end_in=end)
    return StoredSecret(id, secret, from_ms(row["created_at"]))


async def ensure_secret(session: Session, secret: Secret) -> StoredSecret | None:
    """Add the first secret, in a transaction of the caller."""
    await session.rows("only_one", what=_SECRETS)
    row = await session.row("ensure_secret", id=FIRST_SECRET, secret=secret.key)
    return None if row is None else StoredSecret(FIRST_SECRET, secret, from_ms(row["created_at"]))


async def forget_secret(session: Session, id: str) -> bool:
    return bool(await session.rows("forget_secret", id=id))


async def signing(session: Session, url: str) -> Signing:
    found = await session.rows("secrets")
    disabled = await session.row("find_disabled", url=url)
    secrets = [_secret(row) for row in found if row["id"] is not None]
    return Signing(secrets, None if disabled is None else columns.disabled_webhook(disabled), from_ms(found[0]["wall"]))


def _secret(row: Any) -> StoredSecret:
    ends_at = None if row["ends_at"] is None else from_ms(row["ends_at"])
    return StoredSecret(row["id"], Secret(row["secret"]), from_ms(row["created_at"]), ends_at)


async def disable(session: Session, url: str, reason: str) -> None:
    await session.rows("disable", url=url, reason=rows.text(reason))


async def enable(session: Session, url: str) -> bool:
    return bool(await session.rows("enable", url=url))


async def disabled(session: Session) -> list[Disabled]:
    return [columns.disabled_webhook(row) for row in await session.rows("disabled")]
