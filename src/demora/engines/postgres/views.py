"""Looking at jobs and queues."""

from ...core.job import Job
from ...core.spans import span_ms
from ...core.states import Status
from ...store import Page, Query, Queue
from . import rows
from .connections import Session
from .statements import narrowed_find

_NARROW = {frozenset({Status.FAILED}): "narrow_dead", frozenset({Status.PROCESSING}): "narrow_processing"}


async def get(session: Session, id: str) -> Job | None:
    key = rows.id_key(id)
    row = None if key is None else await session.row("job", id=key)
    return None if row is None else rows.whole_job(row)


async def find(session: Session, query: Query, schema: str) -> Page:
    narrow = _NARROW.get(query.statuses)
    found = await session.rows(
        narrowed_find(schema, narrow) if narrow else "find",
        after=rows.id_key(query.after) if query.after else None,
        statuses=sorted(query.statuses) or None,
        queue=query.queue,
        type=query.type,
        tag=query.tag,
        older_than=None if query.older_than is None else span_ms(query.older_than),
        limit=query.limit + 1,
    )
    jobs = [rows.whole_job(row) for row in found[: query.limit]]
    return Page(jobs, jobs[-1].id if len(found) > len(jobs) else None)


async def queues(session: Session) -> list[Queue]:
    waiting = {name: (ready, delayed) for name, ready, delayed in await session.rows("count_waiting")}
    processing = {name: count for name, count in await session.rows("count_processing")}  # noqa: C416
    dead = {name: count for name, count in await session.rows("count_dead")}  # noqa: C416
    return [
        rows.queue(row, *waiting.get(row["name"], (0, 0)), processing.get(row["name"], 0), dead.get(row["name"], 0))
        for row in await session.rows("queues")
    ]
