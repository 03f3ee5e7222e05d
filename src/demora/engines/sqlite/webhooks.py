"""Webhooks on SQLite: deliveries, recorded with the end of their job, and the secrets that sign them."""

from collections.abc import Iterable
from datetime import timedelta

from ...core.job import Job
from ...core.spans import from_ms, span_ms
from ...core.states import Status
from ...core.webhook import EndedJob, Secret, delivery
from ...store.webhooks import Disabled, Signing, StoredSecret
from . import additions, rows, views
from .connections import SQL
from .transactions import Transaction


def record_deliveries(tx: Transaction, ids: Iterable[bytes]) -> None:
    """Record a delivery for the end of each of these jobs, in the transaction that ended them."""
    requests = [
        request for id in ids for row in list(tx.db.execute(SQL["ended"], (id,))) if (request := delivery(_ended(row)))
    ]
    if requests:
        additions.write(tx, requests, frozenset())
        tx.unplaced = True


def _ended(row: rows.Row) -> EndedJob:
    id, type, generation, status, completed_at, attempts, url, on_cancel, result, error = row
    return EndedJob(
        id=rows.id_text(id),
        type=type,
        generation=generation,
        status=Status(status),
        completed_at=from_ms(completed_at),
        attempts=attempts,
        url=url,
        on_cancel=bool(on_cancel),
        result=None if result is None else result.encode(),
        error=error,
    )


def deliveries(tx: Transaction, cause: str) -> list[Job]:
    keys = [key for (key,) in tx.db.execute(SQL["deliveries"], (rows.id_bytes(cause),))]
    return [job for key in keys if (job := views.get(tx, rows.id_text(key))) is not None]


def add_secret(tx: Transaction, id: str, secret: Secret, others_end_in: timedelta | None) -> StoredSecret:
    if others_end_in is not None:
        tx.db.execute(SQL["end_secrets"], (tx.wall + span_ms(others_end_in),))
    tx.db.execute(SQL["add_secret"], (id, secret.key, tx.wall))
    return StoredSecret(id, secret, from_ms(tx.wall))


def forget_secret(tx: Transaction, id: str) -> bool:
    tx.db.execute(SQL["forget_secret"], (id,))
    return tx.db.changes() > 0


def signing(tx: Transaction, url: str) -> Signing:
    secrets = [
        StoredSecret(id, Secret(key), from_ms(created_at), None if ends_at is None else from_ms(ends_at))
        for id, key, created_at, ends_at in tx.db.execute(SQL["secrets"])
    ]
    found = [_disabled(row) for row in tx.db.execute(SQL["find_disabled"], (url,))]
    return Signing(secrets, found[0] if found else None, from_ms(tx.wall))


def disable(tx: Transaction, url: str, reason: str) -> None:
    tx.db.execute(SQL["disable"], (url, reason, tx.wall))


def enable(tx: Transaction, url: str) -> bool:
    tx.db.execute(SQL["enable"], (url,))
    return tx.db.changes() > 0


def disabled(tx: Transaction) -> list[Disabled]:
    return [_disabled(row) for row in tx.db.execute(SQL["disabled"])]


def _disabled(row: rows.Row) -> Disabled:
    url, reason, disabled_at = row
    return Disabled(url, reason, from_ms(disabled_at))
