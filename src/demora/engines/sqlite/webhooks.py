"""Webhooks on SQLite: the deliveries of a job, the secrets that sign them, and disabled URLs."""

from datetime import timedelta

from ...core.job import Job
from ...core.outbound.webhook import Secret
from ...core.spans import from_ms, span_ms
from ...store.webhooks import FIRST_SECRET, Disabled, Signing, StoredSecret
from ..sql import columns
from . import rows
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database


class SqliteWebhooks:
    """The deliveries of webhooks, the secrets that sign them, and disabled URLs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deliveries(self, cause: str) -> list[Job]:
        return await self._database.read(lambda tx: deliveries(tx, cause))

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        return await self._database.write(lambda tx: add_secret(tx, id, secret, others_end_in))

    async def ensure_secret(self, secret: Secret) -> StoredSecret | None:
        return await self._database.write(lambda tx: ensure_secret(tx, secret))

    async def forget_secret(self, id: str) -> bool:
        return await self._database.write(lambda tx: forget_secret(tx, id))

    async def signing(self, url: str = "") -> Signing:
        return await self._database.read(lambda tx: signing(tx, url), weight=1)

    async def disable(self, url: str, reason: str) -> None:
        await self._database.write(lambda tx: disable(tx, url, reason))

    async def enable(self, url: str) -> bool:
        return await self._database.write(lambda tx: enable(tx, url))

    async def disabled(self) -> list[Disabled]:
        return await self._database.read(disabled)


def deliveries(tx: Transaction, cause: str) -> list[Job]:
    keys = [key for (key,) in tx.db.execute(SQL["deliveries"], (rows.id_bytes(cause),))]
    return [job for key in keys if (job := rows.get(tx, rows.id_text(key))) is not None]


def add_secret(tx: Transaction, id: str, secret: Secret, others_end_in: timedelta | None) -> StoredSecret:
    if others_end_in is not None:
        tx.db.execute(SQL["end_secrets"], (tx.wall + span_ms(others_end_in),))
    tx.db.execute(SQL["add_secret"], (id, secret.key, tx.wall))
    return StoredSecret(id, secret, from_ms(tx.wall))


def ensure_secret(tx: Transaction, secret: Secret) -> StoredSecret | None:
    if any(one.in_force(from_ms(tx.wall)) for one in signing(tx, "").secrets):
        return None
    forget_secret(tx, FIRST_SECRET)  # it may be on record, and have ended
    return add_secret(tx, FIRST_SECRET, secret, None)


def forget_secret(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_secret"], (id,))
    return tx.db.changes() > 0


def signing(tx: Transaction, url: str) -> Signing:
    secrets = [
        StoredSecret(id, Secret(key), from_ms(created_at), None if ends_at is None else from_ms(ends_at))
        for id, key, created_at, ends_at in tx.db.execute(SQL["secrets"])
    ]
    found = [columns.disabled_webhook(row) for row in tx.db.execute(SQL["find_disabled"], (url,))]
    return Signing(secrets, found[0] if found else None, from_ms(tx.wall))


def disable(tx: Transaction, url: str, reason: str) -> None:
    tx.db.execute(SQL["disable"], (url, reason, tx.wall))


def enable(tx: Transaction, url: str) -> bool:
    tx.db.execute(SQL["enable"], (url,))
    return tx.db.changes() > 0


def disabled(tx: Transaction) -> list[Disabled]:
    return [columns.disabled_webhook(row) for row in tx.db.execute(SQL["disabled"])]
