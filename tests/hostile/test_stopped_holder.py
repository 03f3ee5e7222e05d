"""A process that is stopped while it has the turn or the lock of a database file."""

import asyncio
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demora.core.states import Status
from demora.core.verdict import Succeeded
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection.connections import Waits
from demora.engines.sqlite.connection.locking import Stall, describe_holder
from demora.engines.sqlite.notifier import sockets_folder
from demora.errors import StoreBusy
from demora.store.jobs import Report
from demora.system import notices
from tests.builders import add_one, claim, claim_one, new_job, settlement
from tests.clock import TestClock
from tests.facts import eventually
from tests.hostile.holding import holding

pytestmark = pytest.mark.slow

LEASE = timedelta(seconds=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    return store


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """One that waits for half a second, and a tenth for its turn."""
    store = await opened(path, waits=Waits(lock=0.5, turn=0.1))
    yield store
    await store.close()


async def waits(store: SqliteStore) -> bool:
    """Whether its writer waits for the lock."""
    return store._database._writes._batches._waits_since is not None


async def waits_long(store: SqliteStore) -> bool:
    return not store._database.stall.ended


@pytest.fixture
async def patient(path: Path, clock: TestClock) -> AsyncIterator[SqliteStore]:
    """One that waits for as long as a test may last, on a clock of its own."""
    store = await opened(path, waits=Waits(lock=60, turn=0.1), clock=clock)
    yield store
    await store.close()


# The turn


async def test_a_stopped_process_that_has_the_turn_is_passed_by(path: Path, patient: SqliteStore) -> None:
    with holding("turn", path), holding("lock", path, stopped=False) as writer:
        adding = asyncio.ensure_future(add_one(patient))
        await eventually(lambda: waits(patient))
        writer.let_go()
        await asyncio.wait_for(adding, 10)


async def test_a_turn_that_was_passed_by_is_not_waited_for_again(path: Path) -> None:
    store = await opened(path, waits=Waits(lock=60, turn=2))
    with holding("turn", path):
        took = []
        for _ in range(2):
            with holding("lock", path, stopped=False) as writer:
                adding = asyncio.ensure_future(add_one(store))
                await eventually(lambda: waits(store))
                writer.let_go()
                began = time.monotonic()
                await asyncio.wait_for(adding, 10)
                took.append(time.monotonic() - began)
        assert took[1] < 1 < took[0]
    await store.close()


async def test_the_queue_is_used_again_once_the_stopped_process_is_gone(path: Path, patient: SqliteStore) -> None:
    turns = patient._database._writes._batches.turns

    async def passed() -> bool:
        return turns._passed

    with holding("turn", path) as stopped, holding("lock", path, stopped=False) as writer:
        adding = asyncio.ensure_future(add_one(patient))
        await eventually(passed)
        writer.let_go()
        await adding
        stopped.kill()
        await eventually(passed, lambda now: not now)
    assert turns.take()
    turns.give_back()


async def test_a_store_is_closed_although_a_thread_of_it_waits_for_its_turn(path: Path) -> None:
    before = writers()
    store = await opened(path, waits=Waits(lock=60, turn=0.1))
    with holding("turn", path), holding("lock", path) as writer:
        adding = asyncio.ensure_future(add_one(store))
        await eventually(lambda: waits(store))
        await asyncio.wait_for(store.close(), 10)
        with pytest.raises(StoreBusy):
            await adding
        writer.let_go()
    await eventually(lambda: none_but(before))


def writers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "demora-sqlite-writer"}


async def none_but(before: set[threading.Thread]) -> bool:
    return writers() <= before


# The lock


async def test_a_stopped_process_that_has_the_lock_makes_writes_busy_and_lets_reads_go_on(
    path: Path, store: SqliteStore
) -> None:
    job = await add_one(store)
    with holding("lock", path) as holder:
        with pytest.raises(StoreBusy, match="nothing was written"):
            await asyncio.wait_for(add_one(store), 10)
        assert await store.get(job.id) is not None
        holder.let_go()
        await add_one(store)
    assert len((await claim(store)).jobs) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who holds which lock")
async def test_the_log_and_the_error_name_the_holder(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_said", {})
    with holding("lock", path) as holder, pytest.raises(StoreBusy) as refused:
        await add_one(store)
    assert re.search(rf"process {holder.pid} \(python[\d.]*, stopped\)", str(refused.value))
    [said] = [record for record in caplog.records if getattr(record, "event", "") == "store.locked"]
    assert said.levelno == logging.ERROR
    assert f"process {holder.pid} (python" in said.getMessage()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who holds which lock")
async def test_looking_for_the_holder_leaves_our_own_locks_in_place(path: Path, store: SqliteStore) -> None:
    def look(db: Any) -> tuple[str | None, bool]:
        db.execute("begin immediate")
        described = describe_holder(str(path))
        refused = not can_be_written(path)
        db.execute("rollback")
        return described, refused

    described, refused = await store._database.bare(look)
    assert described == f"this process itself ({os.getpid()})"
    assert refused
    assert describe_holder(str(path)) is None


def can_be_written(path: Path) -> bool:
    """Whether another process could have the lock."""
    ask = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('begin immediate')"
    return subprocess.run([sys.executable, "-c", ask, str(path)], check=False, stderr=subprocess.DEVNULL).returncode == 0


async def test_each_call_has_its_own_time(path: Path) -> None:
    store = await opened(path, waits=Waits(lock=2, turn=0.1))
    with holding("lock", path):
        first = asyncio.ensure_future(add_one(store))
        await eventually(lambda: waits(store))
        loop, ends = asyncio.get_running_loop(), list[float]()
        began = loop.time()
        second = asyncio.ensure_future(add_one(store))
        for call in (first, second):
            call.add_done_callback(lambda _: ends.append(loop.time()))
        await asyncio.wait([first, second])
        assert isinstance(second.exception(), StoreBusy)
        assert 2 <= ends[1] - began < 3.5
    await store.close()


async def test_a_store_that_is_opened_meanwhile_is_busy_and_can_be_opened_later(path: Path, store: SqliteStore) -> None:
    late = SqliteStore(path, waits=Waits(lock=0.2))
    with holding("lock", path) as holder:
        with pytest.raises(StoreBusy):
            await asyncio.wait_for(late.open(), 10)
        holder.let_go()
    await late.open()
    await add_one(late)
    await late.close()


async def test_closing_does_not_wait_for_the_lock(path: Path) -> None:
    store = await opened(path, waits=Waits(lock=60, turn=0.1))
    with holding("lock", path):
        adding = asyncio.ensure_future(add_one(store))
        await eventually(lambda: waits(store))
        await asyncio.wait_for(store.close(), 10)
        with pytest.raises(StoreBusy):
            await adding


# Whether writes are taken


async def test_a_probe_says_that_writes_hang_before_they_are_refused(path: Path) -> None:
    store = await opened(path, waits=Waits(lock=60, turn=0.1))
    store.diagnostics._probe._within = 0.2
    await store.diagnostics.probe()
    with holding("lock", path) as holder:
        store.diagnostics._probe._asked_at = 0.0  # the last answer is of long ago
        for _ in range(2):
            with pytest.raises(StoreBusy, match="not ended within"):
                await asyncio.wait_for(store.diagnostics.probe(), 10)
        holder.let_go()
    await eventually(lambda: works(store))
    await store.close()


async def works(store: SqliteStore) -> bool:
    try:
        await store.diagnostics.probe()
    except StoreBusy:
        return False
    return True


async def test_many_probes_share_one_write(store: SqliteStore) -> None:
    changes = await store._database.bare(lambda db: db.total_changes())
    await asyncio.gather(*(store.diagnostics.probe() for _ in range(100)))
    assert await store._database.bare(lambda db: db.total_changes()) == changes + 1


# Leases


async def test_a_lease_that_ran_out_while_nobody_could_write_is_renewed(
    path: Path, patient: SqliteStore, clock: TestClock
) -> None:
    await add_one(patient)
    job = await claim_one(patient, lease=LEASE)
    with holding("lock", path) as holder:
        renewing = asyncio.ensure_future(patient.renew([Report(job.lease, timedelta(0))], lease=LEASE))
        await eventually(lambda: waits(patient))
        clock.turn(40)
        holder.let_go()
        heard = await renewing
    assert not heard.lost
    clock.turn(25)
    assert (await claim(patient)).lapsed == []
    [status] = await patient.settle([settlement(job, Succeeded(b"1"))])
    assert status is Status.COMPLETED


async def test_who_waited_for_long_leaves_lapsed_leases_alone_for_as_long_as_a_renewal_takes(
    path: Path, patient: SqliteStore, clock: TestClock
) -> None:
    await patient.add([new_job() for _ in range(2)])
    await claim(patient, 1, lease=timedelta(seconds=1), worker="dead before")
    await claim(patient, 1, lease=LEASE, worker="blocked")
    clock.turn(2)  # the first lease has lapsed before the stall
    with holding("lock", path) as holder:
        claiming = asyncio.ensure_future(claim(patient))
        await eventually(lambda: waits(patient))
        clock.turn(40)
        holder.let_go()
        claimed = await claiming
    assert [job.worker_id for job in claimed.lapsed] == ["dead before"]
    assert claimed.next_in == timedelta(seconds=10)  # and no busy loop until then
    clock.turn(9.9)
    assert [job.worker_id for job in (await claim(patient)).lapsed] == ["dead before"]
    clock.turn(0.2)
    assert [job.worker_id for job in (await claim(patient)).lapsed] == ["dead before", "blocked"]


async def test_a_stall_that_made_writes_busy_counts_from_its_beginning(
    path: Path, store: SqliteStore, clock: TestClock
) -> None:
    other = await opened(path, waits=Waits(lock=0.2, turn=0.1), clock=clock)
    await add_one(other)
    job = await claim_one(other, lease=LEASE)
    with holding("lock", path) as holder:
        for _ in range(2):
            with pytest.raises(StoreBusy):
                await claim(other)
            clock.turn(20)
        holder.let_go()
    assert (await claim(other)).lapsed == []
    assert not (await other.renew([Report(job.lease, timedelta(0))], lease=LEASE)).lost
    await other.close()


async def test_a_short_wait_spares_nobody(path: Path, patient: SqliteStore, clock: TestClock) -> None:
    await add_one(patient)
    await claim_one(patient, lease=LEASE)
    clock.turn(29.5)
    with holding("lock", path) as holder:
        claiming = asyncio.ensure_future(claim(patient))
        await eventually(lambda: waits(patient))
        clock.turn(0.9)
        holder.let_go()
        assert len((await claiming).lapsed) == 1


async def test_a_second_long_wait_of_a_process_does_not_make_it_lose_its_leases(path: Path, clock: TestClock) -> None:
    worker = await opened(path, waits=Waits(lock=60, turn=0.1, stall=0.1), clock=clock)
    keeper = worker.sibling()
    assert keeper is not None
    await keeper.open()
    await add_one(worker)
    job = await claim_one(worker, lease=LEASE)
    with holding("lock", path) as holder:
        claiming = asyncio.ensure_future(claim(worker))
        await eventually(lambda: waits_long(worker))
        clock.turn(40)
        renewing = asyncio.ensure_future(keeper.renew([Report(job.lease, timedelta(0))], lease=LEASE))
        await eventually(lambda: waits(keeper))
        clock.turn(2)
        holder.let_go()
        assert (await claiming).lapsed == []
        assert not (await renewing).lost
    await keeper.close()
    await worker.close()


async def test_a_process_that_never_waited_leaves_the_leases_of_those_that_did_alone(path: Path, clock: TestClock) -> None:
    busy, idle = [await opened(path, waits=Waits(lock=limit, turn=0.1), clock=clock) for limit in (0.5, 60)]
    await add_one(busy)
    job = await claim_one(busy, lease=LEASE)
    with holding("lock", path) as holder:
        renewing = asyncio.ensure_future(busy.renew([Report(job.lease, timedelta(0))], lease=LEASE))
        await eventually(lambda: waits(busy))
        clock.turn(40)
        with pytest.raises(StoreBusy):
            await renewing
        holder.let_go()
    claimed = await claim(idle)
    assert (claimed.lapsed, claimed.next_in) == ([], timedelta(seconds=10))
    assert not (await busy.renew([Report(job.lease, timedelta(0))], lease=LEASE)).lost
    clock.turn(31)
    assert [lapsed.lease for lapsed in (await claim(idle)).lapsed] == [job.lease]
    await busy.close()
    await idle.close()


async def test_a_process_that_starts_during_stalls_takes_over_what_lapsed_before(path: Path, clock: TestClock) -> None:
    store = await opened(path, clock=clock)
    await add_one(store)
    job = await claim_one(store, lease=LEASE, worker="dead")
    stamp = sockets_folder(path) / "stalled"
    stamp.parent.mkdir(exist_ok=True)
    clock.turn(60)
    for _ in range(2):  # the lease lapsed long ago, and another process waits again and again
        Stall(stamp).goes_on(clock.boot(), clock.boot() + 1_100)
        clock.turn(1.2)
        assert Stall(stamp).heeds_others(clock.boot())
        new = await opened(path, clock=clock)
        assert [lapsed.lease for lapsed in (await claim(new)).lapsed] == [job.lease]
        await new.close()
    await store.close()


async def test_a_wait_is_known_to_other_processes_before_it_ends(path: Path, clock: TestClock) -> None:
    store = await opened(path, waits=Waits(lock=60, turn=0.1, stall=0.1), clock=clock)
    other = Stall(sockets_folder(path) / "stalled")

    async def heeded() -> bool:
        return other.heeds_others(clock.boot())

    with holding("lock", path) as holder:
        adding = asyncio.ensure_future(add_one(store))
        await eventually(heeded)
        clock.turn(40)
        await eventually(heeded)  # and again, as long as it lasts
        holder.let_go()
        await adding
    await store.close()
