"""Webhook deliveries on SQLite, recorded in the transaction that ends their job."""

from collections.abc import Iterable

from ....core.outbound.webhook import delivery
from ...sql import columns
from .. import rows
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from .adding import store


def record_deliveries(tx: Transaction, ids: Iterable[bytes]) -> None:
    """Record a delivery for the end of each of these jobs, in the transaction that ended them."""
    ended = [columns.ended_job(row, rows.id_text(id)) for id in ids for row in list(tx.db.execute(SQL["ended"], (id,)))]
    requests = [request for job in ended if (request := delivery(job)) is not None]
    if requests:
        store(tx, requests, frozenset())
        tx.unplaced = True
