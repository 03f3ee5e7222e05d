"""The audit on PostgreSQL: an event for each transition, by whoever makes it; and none where it is off."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from demora.core.job import Unique
from demora.core.verdict import Lapsed, Raised
from demora.engines.postgres import PostgresOptions, PostgresStore, audit
from demora.engines.postgres.connection.connections import Statement, statements
from demora.proof import check
from demora.store.jobs import Change, Report
from tests.builders import BROKEN, DONE, LEASE, add_one, claim_one, job_of, lapsed_one, ms, seconds, settle
from tests.clock import TestClock


@pytest.fixture
async def audited(url: str, schema: str, clock: TestClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=2), clock=clock, audit=True)
    await store.open()
    yield store
    await store.close()


async def kinds(store: PostgresStore) -> list[str]:
    return [event.kind for event in await store.audit.events()]


async def test_a_job_leaves_an_event_for_each_step(audited: PostgresStore, clock: TestClock) -> None:
    added = await add_one(audited, delay=seconds(5))
    await audited.change(added.id, Change(at=clock.now()))
    job = await claim_one(audited)
    clock.turn(1)
    await audited.renew([Report(job.lease, seconds(1))], lease=LEASE)
    await audited.cancel([added.id])
    await settle(audited, job, Raised("no"))
    await audited.retry([added.id])
    await audited.cancel([added.id])
    await audited.remove([added.id])
    running = ["claimed", "renewed", "accepted", "cancel_requested", "settled", "accepted"]
    assert await kinds(audited) == ["added", "changed", *running, "retried", "cancelled", "removed"]


async def test_an_event_says_how_the_job_stood_and_stands_at_the_verbs_own_time(
    audited: PostgresStore, clock: TestClock
) -> None:
    added = await add_one(audited, max_retries=2, queue="mail")
    await claim_one(audited, worker="ann")
    event = (await audited.audit.events())[-1]
    assert (event.job, event.kind, event.old_status, event.status) == (added.id, "claimed", "QUEUED", "PROCESSING")
    assert (event.old_token, event.token, event.worker, event.queue) == (0, 1, "ann", "mail")
    assert (event.at, event.boot, event.lease_until) == (clock.wall(), clock.wall(), clock.wall() + LEASE // ms(1))


async def test_a_write_under_a_lease_that_is_gone_leaves_a_trace(audited: PostgresStore, clock: TestClock) -> None:
    await add_one(audited)
    job = await claim_one(audited)
    clock.turn(31)
    await audited.renew([Report(job.lease, seconds(31))], lease=LEASE)
    await settle(audited, job, DONE)
    lapsed = await lapsed_one(audited)
    await settle(audited, lapsed, Lapsed(lapsed.worker_id))
    await settle(audited, lapsed, Lapsed(lapsed.worker_id))
    traces = [(e.kind, e.wrote, e.token, e.old_status) for e in await audited.audit.events() if e.wrote]
    assert traces == [
        ("stale", "renew", 1, "PROCESSING"),
        ("stale", "settle", 1, "PROCESSING"),
        ("accepted", "lapse", 1, "RETRYING"),
        ("stale", "lapse", 1, "RETRYING"),
    ]


async def test_a_store_that_was_open_before_writes_events_too(store: PostgresStore, url: str, schema: str) -> None:
    other = PostgresStore(url, PostgresOptions(schema=schema, connections=1), clock=store.clock, audit=True)
    await other.open()
    await add_one(store)
    await settle(store, await claim_one(store), DONE)
    assert await kinds(other) == ["added", "claimed", "settled", "accepted"]
    await other.close()


async def test_an_audit_that_was_ended_leaves_nothing(audited: PostgresStore) -> None:
    await add_one(audited)
    await audited.audit.end()
    await settle(audited, await claim_one(audited), DONE)
    assert await kinds(audited) == []
    assert (await audited.audit.evidence()).events is None


async def test_evidence_is_all_that_there_is_to_show(store: PostgresStore, clock: TestClock) -> None:
    added = await add_one(store, queue="mail")
    await settle(store, await claim_one(store), BROKEN)
    await add_one(store, queue="mail")
    shown = await store.audit.evidence()
    dead = next(job for job in shown.jobs if job.id == added.id)
    job = await job_of(store, added.id)
    assert (dead.status, dead.token, dead.attempt, dead.recorded) == ("FAILED", 1, job.attempt, (1,))
    assert [(queue.name, queue.ready, queue.dead) for queue in shown.queues] == [("mail", 1, 1)]
    assert (shown.now, shown.orphans, shown.integrity, shown.events) == (clock.wall(), [], [], None)


async def test_a_late_first_claim_is_seen_by_the_checker(
    audited: PostgresStore, schema: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, schema, "claim", "coalesce(expires_at <= wall, false)", "false")
    added = await add_one(audited, expires_in=seconds(1))
    clock.turn(2)
    await claim_one(audited)
    assert await violations(audited) == [("I19", added.id)]


async def test_two_waiting_jobs_of_one_key_are_seen_by_the_checker(
    audited: PostgresStore, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, schema, "unique_waiting", "generation = 1", "generation = 0")
    connection = await asyncpg.connect(url)
    await connection.execute(f"drop index {schema}.jobs_unique")
    await connection.close()
    await add_one(audited, unique=Unique("k"))
    second = await add_one(audited, unique=Unique("k"))
    assert await violations(audited) == [("I20", second.id)]


async def test_triggers_of_an_earlier_demora_are_made_anew(audited: PostgresStore, url: str, schema: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"update {schema}.meta set value = 'on' where name = 'audit'")
    await connection.execute(f"drop trigger audit_added on {schema}.jobs")
    other = PostgresStore(url, audited.options, clock=audited.clock, audit=True)
    await other.open()
    await add_one(other)
    assert await kinds(other) == ["added"]
    assert await connection.fetchval(f"select value from {schema}.meta where name = 'audit'") == audit.TRIGGERS
    await other.close()
    await connection.close()


async def violations(store: PostgresStore) -> list[tuple[str, str | None]]:
    shown = await store.audit.evidence(integrity=False)
    return [(found.rule, found.job) for found in check([], shown).violations]


def plant(monkeypatch: pytest.MonkeyPatch, schema: str, name: str, sound: str, bad: str) -> None:
    """Put a bug into a statement."""
    sql, parameters = statements(schema)[name]
    assert sound in sql
    monkeypatch.setitem(statements(schema), name, Statement(sql.replace(sound, bad), parameters))
