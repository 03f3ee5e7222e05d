"""The audit: triggers that write an event for each transition of a job, and the reading of what they wrote."""

from ...audit import Evidence, JobFacts, KeyFacts, QueueFacts, SqlEvent
from ...core.states import Status
from ...store import Queue
from . import paces, views
from .connections import Session
from .rows import Row
from .statements import script, statements

TRIGGERS = "4"  # as audit.sql numbers them
_NAMES = {status.value: status.name for status in Status} | {None: None}


async def begin(session: Session, schema: str) -> None:
    """Write an event for each transition from now on, whichever process makes it. To begin twice is to begin once."""
    if await _triggers(session) != TRIGGERS:
        async with session.transaction():
            await session.rows("only_one", what=f"demora {schema}")
            await session.script(script("audit.sql", schema))


async def end(session: Session, schema: str) -> None:
    async with session.transaction():
        await session.script(statements(schema)["end_audit"].sql)


async def events(session: Session, after: int) -> list[SqlEvent]:
    return [_event(row) for row in await session.rows("events", after=after)]


async def evidence(session: Session, schema: str, *, integrity: bool) -> Evidence:
    async with session.transaction(isolation="repeatable_read"):
        audited = await _triggers(session) is not None
        return Evidence(
            now=(await session.row("now"))["us"] // 1000,
            jobs=[_job(row) for row in await session.rows("job_facts")],
            queues=[_queue(queue) for queue in await views.queues(session)],
            keys=[_key(row) for row in await session.rows("key_facts")],
            strays=[str(id) for (id,) in await session.rows("stray_attempts")],
            paces=await paces.facts(session),
            integrity=[row["name"] for row in await session.rows("unsound", schema=schema)] if integrity else None,
            events=await events(session, 0) if audited else None,
        )


async def _triggers(session: Session) -> str | None:
    """Which triggers there are, None if there are none."""
    row = await session.row("audited")
    return None if row is None else str(row["value"])


def _event(row: Row) -> SqlEvent:
    seq, at, id, kind, wrote, old_status, status, *rest = row
    return SqlEvent(seq, at, at, str(id), kind, wrote, _NAMES[old_status], _NAMES[status], *rest)


def _job(row: Row) -> JobFacts:
    id, status, *rest, recorded, webhook, on_cancel, cause, lane = row
    told = (webhook, on_cancel, None if cause is None else str(cause))
    fields: Row = (str(id), _NAMES[status], *rest, tuple(recorded), *told, lane)
    return JobFacts(*fields)


def _queue(queue: Queue) -> QueueFacts:
    counts = (queue.ready, queue.delayed, queue.processing, queue.dead)
    return QueueFacts(queue.name, *counts, paused=queue.pause is not None)


def _key(row: Row) -> KeyFacts:
    scope, key, id, created_at, expires_at = row
    return KeyFacts(scope, key, str(id), created_at, expires_at)
