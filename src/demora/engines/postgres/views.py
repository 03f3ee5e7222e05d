"""Reading jobs and queues."""

from ...core.job import Job
from ...core.spans import span_ms
from ...core.states import Status
from ...store.jobs import ALL_QUEUES, Page, Query, Queue, QueueQuery
from . import rows
from .connections import Session, narrowed_find

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
        with_payload=query.payload,
        with_result=query.result,
        bytes=query.bytes,
    )
    jobs = [rows.whole_job(row) for row in found[: query.limit]]
    return Page(jobs, jobs[-1].id if jobs and found[0]["matching"] > len(jobs) else None)


async def queues(session: Session, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
    what = {"first": which.first, "last": which.last, "after": which.after, "limit": which.limit}
    return [rows.queue(row) for row in await session.rows("queues", **what)]
