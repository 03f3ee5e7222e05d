"""The audit on PostgreSQL: triggers that record an event for each transition of a job, and what a checker reads."""

from ...store.audit import Evidence, FireFacts, JobFacts, KeyFacts, SqlEvent
from ..sql import columns
from ..sql.columns import STATUS_NAMES
from . import paces, registry
from .connection.connections import Session, script, statements
from .database import Database
from .rows import Row

TRIGGERS = "5"  # the version in audit.sql


class PostgresAudit:
    """What a checker reads, also while no audit is recorded."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self._database.read(lambda session: events(session, after))

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self._database.read(
            lambda session: evidence(session, self._database.options.schema, integrity=integrity)
        )

    async def end(self) -> None:
        await self._database.write(lambda session: end_audit(session, self._database.options.schema))


async def begin_audit(session: Session, schema: str) -> None:
    """Record an event for each transition from now on, of every process. Idempotent."""
    if await _triggers(session) != TRIGGERS:
        async with session.transaction():
            await session.rows("only_one", what=f"demora {schema}")
            await session.script(script("audit.sql", schema))


async def end_audit(session: Session, schema: str) -> None:
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
            queues=[columns.queue_facts(queue) for queue in await registry.queues(session)],
            keys=[_key(row) for row in await session.rows("key_facts")],
            orphans=[str(id) for (id,) in await session.rows("orphan_attempts")],
            paces=await paces.facts(session),
            fire_times=[_fire_time(row) for row in await session.rows("fire_facts")],
            integrity=[row["name"] for row in await session.rows("unsound", schema=schema)] if integrity else None,
            events=await events(session, 0) if audited else None,
        )


async def _triggers(session: Session) -> str | None:
    """The version of the triggers, None if there are none."""
    row = await session.row("audited")
    return None if row is None else str(row["value"])


def _event(row: Row) -> SqlEvent:
    seq, at, id, kind, wrote, old_status, status, *rest = row
    return SqlEvent(seq, at, at, str(id), kind, wrote, STATUS_NAMES[old_status], STATUS_NAMES[status], *rest)


def _job(row: Row) -> JobFacts:
    id, status, *rest, recorded, webhook, on_cancel, cause, lane, schedule, slot_at = row
    hook = (webhook, on_cancel, None if cause is None else str(cause))
    fields: Row = (str(id), STATUS_NAMES[status], *rest, tuple(recorded), *hook, lane, schedule, slot_at)
    return JobFacts(*fields)


def _fire_time(row: Row) -> FireFacts:
    schedule, slot_at, outcome, id = row
    return FireFacts(schedule, slot_at, outcome, None if id is None else str(id))


def _key(row: Row) -> KeyFacts:
    namespace, key, id, created_at, expires_at = row
    return KeyFacts(namespace, key, str(id), created_at, expires_at)
