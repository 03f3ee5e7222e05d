"""The audit: an event for each transition, in its transaction, by whoever makes it; and nothing at all where it is off."""

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from demora.core.states import Status
from demora.core.verdict import HandedBack, Lapsed, Raised
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreError
from demora.store.audit import SqlEvent
from demora.store.jobs import Change, Query, Report
from tests.builders import (
    BROKEN,
    DONE,
    LEASE,
    add_one,
    claim_one,
    ended_one,
    job_of,
    key,
    lapsed_one,
    ms,
    new_job,
    seconds,
    settle,
    settlement,
)
from tests.clock import TestClock


@pytest.fixture
async def audited(path: Path, clock: TestClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=clock, audit=True)
    await store.open()
    yield store
    await store.close()


async def kinds(store: SqliteStore) -> list[str]:
    return [event.kind for event in await store.audit.events()]


async def last(store: SqliteStore) -> SqlEvent:
    return (await store.audit.events())[-1]


async def test_a_job_leaves_an_event_for_each_step(audited: SqliteStore, clock: TestClock) -> None:
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


async def test_an_event_says_how_the_job_stood_and_stands(audited: SqliteStore, clock: TestClock) -> None:
    added = await add_one(audited, max_retries=2, queue="mail")
    await claim_one(audited, worker="ann")
    event = await last(audited)
    assert (event.job, event.kind, event.old_status, event.status) == (added.id, "claimed", "QUEUED", "PROCESSING")
    assert (event.old_token, event.token, event.credits, event.generation, event.max_retries) == (0, 1, 0, 1, 2)
    assert (event.worker, event.queue, event.old_lease_until) == ("ann", "mail", None)
    assert event.lease_until == clock.boot() + LEASE // ms(1)
    assert (event.at, event.boot) == (clock.wall(), clock.boot())


async def test_a_settlement_says_what_it_came_to(audited: SqliteStore) -> None:
    await add_one(audited)
    await settle(audited, await claim_one(audited), BROKEN)
    [event] = [event for event in await audited.audit.events() if event.kind == "settled"]
    assert (event.status, event.error) == ("FAILED", "ValueError: no")


async def test_events_are_numbered_and_can_be_read_from_any_on(audited: SqliteStore) -> None:
    await ended_one(audited, Status.COMPLETED)
    assert [event.seq for event in await audited.audit.events()] == [1, 2, 3, 4]
    assert [event.kind for event in await audited.audit.events(after=2)] == ["settled", "accepted"]


async def test_an_accepted_write_leaves_the_token_of_its_writer(audited: SqliteStore) -> None:
    await add_one(audited)
    await settle(audited, await claim_one(audited), HandedBack())
    await audited.settle([settlement(await claim_one(audited), DONE)])
    traces = [(e.wrote, e.token, e.old_status, e.old_token) for e in await audited.audit.events() if e.kind == "accepted"]
    assert traces == [("settle", 1, "QUEUED", 1), ("settle", 2, "COMPLETED", 2)]


async def test_a_write_under_a_lease_that_is_gone_leaves_a_trace(audited: SqliteStore, clock: TestClock) -> None:
    await add_one(audited)
    job = await claim_one(audited)
    clock.turn(31)
    await audited.renew([Report(job.lease, seconds(31))], lease=LEASE)
    await settle(audited, job, DONE)
    await settle(audited, job, HandedBack())
    traces = [(e.wrote, e.token, e.old_status, e.old_token) for e in await audited.audit.events() if e.kind == "stale"]
    assert traces == [(wrote, 1, "PROCESSING", 1) for wrote in ("renew", "settle", "settle")]


async def test_of_two_who_settle_a_lapse_the_second_leaves_a_trace(audited: SqliteStore, clock: TestClock) -> None:
    await add_one(audited)
    await claim_one(audited)
    clock.turn(31)
    job = await lapsed_one(audited)
    await settle(audited, job, Lapsed(job.worker_id))
    await settle(audited, job, Lapsed(job.worker_id))
    event = await last(audited)
    assert (event.kind, event.wrote, event.old_status) == ("stale", "lapse", "RETRYING")


async def test_what_is_rolled_back_leaves_no_event(audited: SqliteStore) -> None:
    assert audited._database.is_open
    await audited._database.bare(lambda db: db.set_commit_hook(lambda: True))
    with pytest.raises(StoreError):
        await add_one(audited)
    await audited._database.bare(lambda db: db.set_commit_hook(None))
    assert await kinds(audited) == []


async def test_what_changes_nothing_leaves_no_event(audited: SqliteStore) -> None:
    job = new_job(key=key())
    await audited.add([job])
    await audited.add([job])
    await claim_one(audited)
    await audited.cancel([job.id])
    await audited.cancel([job.id])
    assert await kinds(audited) == ["added", "claimed", "cancel_requested"]


async def test_a_new_boot_is_told_from_a_renewal(audited: SqliteStore, path: Path, clock: TestClock) -> None:
    await add_one(audited)
    await claim_one(audited)
    clock.reboot()
    other = SqliteStore(path, clock=clock)
    await other.open()
    await other.close()
    assert (await last(audited)).kind == "lapsed"


async def test_a_process_without_the_setting_writes_events_too(
    audited: SqliteStore, store: SqliteStore, clock: TestClock
) -> None:
    await add_one(store)
    job = await claim_one(store)
    clock.turn(31)
    assert await settle(store, job, DONE) is None
    assert await kinds(audited) == ["added", "claimed", "stale"]


async def test_a_process_that_was_there_first_writes_events_too(path: Path, clock: TestClock) -> None:
    first, second = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock, audit=True)
    await first.open()
    await second.open()
    await first.add([new_job(), new_job()])
    assert await kinds(second) == ["added", "added"]
    await first.close()
    await second.close()


async def test_the_audit_outlives_the_store_that_began_it(path: Path, clock: TestClock) -> None:
    for audit in (True, True, False):
        store = SqliteStore(path, clock=clock, audit=audit)
        await store.open()
        await add_one(store)
        found = await kinds(store)
        await store.close()
    assert found == ["added"] * 3


async def test_an_audit_can_be_ended_for_all(audited: SqliteStore, store: SqliteStore, clock: TestClock) -> None:
    await add_one(store)
    job = await claim_one(store)
    await audited.audit.end()
    clock.turn(31)
    await settle(store, job, DONE)
    await add_one(audited)
    assert await kinds(store) == []
    assert (await store.audit.evidence()).events is None


async def statements(store: SqliteStore) -> list[str]:
    """What a store says to SQLite while a job is run and outlives its lease, by its first words."""
    said: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: object) -> bool:
        said.append(" ".join(sql.split()[:3]))
        return True

    assert store._database.is_open
    await store._database.bare(lambda db: db.set_exec_trace(trace))
    await add_one(store)
    job = await claim_one(store, lease=ms(10))
    assert isinstance(store.clock, TestClock)
    store.clock.turn(1)
    await store.renew([Report(job.lease, ms(1))], lease=LEASE)
    await settle(store, job, DONE)
    await settle(store, job, BROKEN)
    return said


async def test_without_an_audit_no_statement_is_said_more(path: Path, store: SqliteStore, clock: TestClock) -> None:
    said = await statements(store)
    assert not any("events" in sql for sql in said)
    audited = SqliteStore(path, clock=clock, audit=True)
    await audited.open()
    traced = await statements(audited)
    await audited.close()
    assert [sql for sql in traced if sql != "insert into events"] == said
    assert len(traced) == len(said) + 3


async def test_evidence_is_all_that_there_is_to_show(audited: SqliteStore, clock: TestClock) -> None:
    id = await ended_one(audited, Status.FAILED, key=key(), queue="mail")
    await add_one(audited, queue="mail")
    shown = await audited.audit.evidence()
    dead = next(job for job in shown.jobs if job.id == id)
    job = await job_of(audited, id)
    assert (dead.status, dead.token, dead.attempt, dead.recorded) == ("FAILED", job.token, job.attempt, (1,))
    assert (dead.error, dead.completed_at, dead.lease_until) == (job.error, clock.wall(), None)
    assert [(queue.name, queue.ready, queue.dead, queue.paused) for queue in shown.queues] == [("mail", 1, 1, False)]
    assert [(key.key, key.job) for key in shown.keys] == [("k", id)]
    assert (shown.now, shown.integrity, shown.orphans) == (clock.wall(), [], [])
    assert shown.events == await audited.audit.events()
    assert len(shown.jobs) == len((await audited.find(Query())).jobs)


async def test_a_file_that_was_harmed_says_so(store: SqliteStore, path: Path) -> None:
    await add_one(store)
    db = apsw.Connection(str(path))
    db.execute("insert into attempts (job_id, token, ended_at) values (x'00000000000000000000000000000000', 1, 0)")
    db.execute("pragma ignore_check_constraints = on; update jobs set lease_until = 5")
    db.close()
    shown = await store.audit.evidence()
    assert shown.orphans == ["00000000-0000-0000-0000-000000000000"]
    assert shown.integrity == ["CHECK constraint failed in jobs"]
    assert (await store.audit.evidence(integrity=False)).integrity is None
