"""Webhook deliveries on PostgreSQL, recorded in the transaction that ends their job."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from ....core.outbound.webhook import delivery
from ....system import crash
from ...sql import columns
from ..connection.connections import Session
from .adding import store


@asynccontextmanager
async def with_deliveries(session: Session) -> AsyncIterator[list[str]]:
    """A transaction that ends jobs with webhooks. The block puts the ids of the jobs that it ended into the list; their
    deliveries are recorded in the same transaction."""
    ended: list[str] = []
    async with session.transaction():
        yield ended
        if ended:
            await _record_deliveries(session, ended)
        crash.at("batch.applied")


async def _record_deliveries(session: Session, ids: Iterable[str]) -> None:
    found = await session.rows("ended", ids=list(ids))
    requests = [request for row in found if (request := delivery(columns.ended_job(row, str(row["id"])))) is not None]
    await store(session, requests, frozenset())
    session.unplaced = True
