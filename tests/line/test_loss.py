"""The line is disposable: if it is lost, no job is lost or runs twice, and the maintainer fills it again."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demora.core.job import Priority
from demora.core.verdict import Raised
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreError
from demora.line import LinedStore, claiming, filling
from demora.line import maintainer as maintaining
from demora.line.redis import RedisLine, line
from demora.store.jobs import QueueChange, Topic
from demora.store.line_feed import Entry, Place
from tests.builders import DONE, add_ids, add_one, claim, claim_ids, claim_one, seconds, settle, status_of
from tests.clock import TestClock
from tests.copies import jobs_file
from tests.facts import eventually
from tests.line.conftest import Open
from tests.servers import proxy, valkey
from tests.servers.valkey import Server

SOON = 2.0  # seconds within which the service goes on from the database


@pytest.fixture(autouse=True)
def _brisk(brisk: None) -> None:
    pass


@pytest.fixture(autouse=True)
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no claim ask SQL alone while the line is there."""
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 3600.0)


async def trusted(store: LinedStore, *, is_it: bool = True) -> None:
    async def look() -> bool:
        return (await store._maintainer()).trusted

    await eventually(look, lambda trust: trust is is_it, within=20)


async def standing(store: LinedStore, fact: Callable[[Any], bool] = bool) -> tuple[list[str], list[str]]:
    """What stands in the line and what was handed out, once `fact` holds of it."""

    async def look() -> tuple[list[str], list[str]]:
        places, out = await (await store._maintainer()).line.places()
        return [place.id for place in places], [entry.id for entry in out]

    return await eventually(look, fact, within=20)


async def epoch(store: LinedStore) -> int:
    return (await store.inner.line_feed.begin()).epoch


async def test_jobs_come_by_the_line(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    ids = await add_ids(store, {}, {}, {})
    assert store.diagnostics.notes() == ()
    server.ask("CONFIG", "RESETSTAT")
    assert await claim_ids(store) == ids
    assert "cmdstat_evalsha" in server.ask("INFO", "commandstats")


async def test_a_store_that_cannot_be_opened_leaves_no_connection(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = RedisLine(server.url)  # held until the end: the last reference to it would close it
    store = LinedStore(SqliteStore(jobs_file(tmp_path)), lambda: line)
    monkeypatch.setattr(store.inner.line_feed, "arrangements", _fails)
    with pytest.raises(StoreError, match="as planted"):
        await store.open()
    await eventually(lambda: asyncio.to_thread(server.ask, "CLIENT", "LIST"), lambda found: "name=demora" not in found)


async def test_a_store_that_opens_its_line_late_tries_again_after_an_error(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sibling = (await open_store(server.url)).sibling()
    assert sibling is not None
    await sibling.open()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sibling.inner.line_feed, "arrangements", _fails)
            with pytest.raises(StoreError, match="as planted"):
                await add_one(sibling)
        added = await add_one(sibling)
        assert await claim_ids(sibling) == [added.id]
    finally:
        await sibling.close()


async def _fails() -> None:
    raise StoreError("as planted")


async def test_an_emptied_line_is_filled_again(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    ids = await add_ids(store, {}, {"delay": seconds(60)}, {})
    before = await epoch(store)
    server.ask("FLUSHALL")
    await trusted(store, is_it=False)
    await trusted(store)
    assert await epoch(store) > before
    assert await claim_ids(store) == [ids[0], ids[2]]
    assert await standing(store, lambda held: not held[1]) == ([ids[1]], [])


async def test_no_claim_waits_for_a_line_that_was_emptied(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    ids = await add_ids(store, {}, {}, {})
    server.ask("FLUSHALL")
    assert await claim_ids(store) == ids


async def test_no_claim_of_a_process_that_knew_no_queue_waits_for_it(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintaining, "TICK", 3600.0)
    store = await open_store(server.url)
    server.ask("FLUSHALL")
    added = await add_one(store.inner)
    assert await claim_ids(store) == [added.id]


async def test_a_killed_server_costs_less_than_two_seconds_and_no_job(
    server: Server, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "demora")
    store = await open_store(server.url)
    before = await add_ids(store, {}, {})
    server.kill()
    started = time.monotonic()
    after = await add_ids(store, {})
    assert await claim_ids(store) == before + after
    assert time.monotonic() - started < SOON
    [note] = store.diagnostics.notes()
    assert "handed out by the database" in note
    server.start()
    await trusted(store)
    logged = Counter(getattr(record, "event", "") for record in caplog.records)
    assert (logged["line.away"], logged["line.back"]) == (1, 1)
    assert store.diagnostics.notes() == ()
    again = await add_ids(store, {})
    assert await claim_ids(store) == again


async def test_a_server_that_does_not_answer_costs_less_than_two_seconds(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    before = await add_ids(store, {}, {})
    server.pause()
    started = time.monotonic()
    try:
        assert await claim_ids(store) == before
        assert time.monotonic() - started < SOON
        after = await add_ids(store, {})
        assert await claim_ids(store) == after
    finally:
        server.go_on()
    await trusted(store)
    last = await add_ids(store, {})
    assert await claim_ids(store) == last


async def test_a_replica_that_took_over_is_not_believed(server: Server, open_store: Open) -> None:
    with valkey.running("--replicaof", f"127.0.0.1 {server.port}") as replica:
        async with proxy.before(server.url) as (between, url):
            store = await open_store(url)
            before, first = await epoch(store), await add_ids(store, {}, {})
            await eventually(
                lambda: asyncio.to_thread(replica.ask, "DBSIZE"), lambda said: said.startswith(":") and said[1] != "0"
            )
            server.kill()
            replica.ask("REPLICAOF", "NO", "ONE")
            between.server_port = replica.port
            assert await claim_ids(store) == first
            await trusted(store)
            assert await epoch(store) == before + 1
            assert (await standing(store, lambda _: True))[0] == []
            again = await add_ids(store, {})
            assert await claim_ids(store) == again


@pytest.mark.slow
async def test_a_node_of_a_cluster_that_died_is_replaced_by_its_replica(open_store: Open) -> None:
    cluster = valkey.Cluster()
    try:
        first = cluster.nodes[0]
        replica = cluster.add_replica(of=first)
        store = await open_store(first.url)
        before, ids = await epoch(store), await add_ids(store, *({"queue": queue} for queue in "abcdef"))
        first.kill()
        assert sorted(await claim_ids(store)) == sorted(ids)
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        await trusted(store)
        assert await epoch(store) > before
        again = await add_ids(store, *({"queue": queue} for queue in "abcdef"))
        assert sorted((await standing(store, lambda seen: len(seen[0]) == 6))[0]) == sorted(again)
        assert sorted(await claim_ids(store)) == sorted(again)
    finally:
        cluster.close()


async def test_a_server_restored_from_an_old_copy_is_not_believed(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    ran, waits = await add_ids(store, {}, {"delay": seconds(60)})
    server.ask("SAVE")
    job = await claim_one(store)
    await settle(store, job, DONE)
    later = await add_one(store, delay=seconds(30))
    before = await epoch(store)
    server.kill()
    server.start()
    assert "dbsize" not in server.ask("DBSIZE")
    await trusted(store, is_it=False)
    await trusted(store)
    assert await epoch(store) > before
    places, _ = await (await store._maintainer()).line.places()
    assert {place.id for place in places} == {waits, later.id}
    assert (await claim(store)).jobs == []
    assert ran not in {place.id for place in places}


async def test_a_database_restored_from_a_backup_gets_a_line_of_its_own(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    server.ask("HSET", f"demora:{(await store.inner.line_feed.begin()).database}:{{*}}:state", "epoch", 99)
    await trusted(store, is_it=False)
    await trusted(store)
    assert await epoch(store) == maintainer.line.epoch > 99


async def test_two_processes_agree_on_the_new_line(server: Server, open_store: Open) -> None:
    one, other = await open_store(server.url), await open_store(server.url)
    ids = await add_ids(one, *[{} for _ in range(20)])
    server.ask("FLUSHALL")
    for store in (one, other):
        await trusted(store, is_it=False)
    for store in (one, other):
        await trusted(store)
    assert await epoch(one) == await epoch(other) > 1
    assert await claim_ids(one, 10) + await claim_ids(other, 10) == ids


async def test_a_sweep_puts_a_job_that_no_process_has_put(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    added = await add_one(store.inner, delay=seconds(60))  # as if the process had died before it told the line

    async def lined() -> list[str]:
        places, _ = await (await store._maintainer()).line.places()
        return [place.id for place in places]

    assert await eventually(lined) == [added.id]


async def test_a_job_taken_by_a_process_that_died_is_handed_out_again(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(server.url)
    added = await add_one(store)
    maintainer = await store._maintainer()
    now = maintainer.clock.now()
    taken = await maintainer.line.take(None, 1, now=now, stale=0)
    assert [entry.id for entry in taken.entries] == [added.id]
    assert await claim_ids(store) == []
    monkeypatch.setattr(maintaining, "STALE_AFTER", -1)
    assert await claim_ids(store) == [added.id]


async def test_a_wrong_entry_in_the_line_never_runs(server: Server, open_store: Open) -> None:
    """An entry of a job that has ended, that is due later, that does not exist."""
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    ended = await add_one(store)
    await settle(store, await claim_one(store), DONE)
    later = await add_one(store, delay=seconds(60))
    unknown = "01900000-0000-7000-8000-000000000000"
    wrong = [Place(id, "default", 0, Priority.NORMAL, 0) for id in (ended.id, later.id, unknown)]
    await maintainer.line.put(wrong, now=maintainer.clock.now())
    assert await claim_ids(store) == []
    places, _ = await maintainer.line.places()
    assert [(place.id, place.due_at > maintainer.clock.now()) for place in places] == [(later.id, True)]


async def test_a_job_is_served_in_its_own_queue_whatever_the_line_says(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    elsewhere = await add_one(store, queue="mail")
    await add_one(store)
    await maintainer.line.put([Place(elsewhere.id, "default", 0, Priority.NORMAL, 0)], now=maintainer.clock.now())
    assert elsewhere.id not in await claim_ids(store, queues=["default"])
    assert await claim_ids(store, queues=["mail"]) == [elsewhere.id]


async def test_the_safety_net_finds_a_job_that_fell_out_of_the_line(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(server.url)
    added = await add_one(store)
    maintainer = await store._maintainer()
    await maintainer.line.remove([Entry(added.id, "default")])
    assert await claim_ids(store) == []
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 0.0)
    assert await claim_ids(store) == [added.id]


async def test_the_settings_of_queues_are_sent_again_every_five_ticks(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    await add_one(store)
    maintainer = await store._maintainer()
    await trusted(store)
    await store.inner.set_queue("default", QueueChange(paused=True))  # a process that died before it told the line
    sent = list[int]()
    usual, here = maintainer._arrange, asyncio.current_task()

    async def noted() -> None:
        if asyncio.current_task() is here:  # the maintainer's own task has ticks of its own
            sent.append(ticks)
        await usual()

    maintainer._arrange = noted  # type: ignore[method-assign]
    for ticks in range(1, 11):
        await maintainer._check(ticks)
    assert set(sent) >= {5, 10}
    assert set(sent) <= {5, 10}


async def test_a_defect_in_the_maintenance_does_not_end_it(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintaining, "LONGEST_PAUSE", 0.05)
    store = await open_store(server.url)
    maintainer, sweep, faults = await store._maintainer(), filling.Filler.sweep, []

    async def faulty(self: filling.Filler) -> None:
        if not faults:
            faults.append(self)
            raise RuntimeError("a fault of ours")
        await sweep(self)

    monkeypatch.setattr(filling.Filler, "sweep", faulty)
    await trusted(store, is_it=False)
    assert "a fault of ours" in maintainer.trouble
    await trusted(store)
    assert await claim_ids(store) == []


async def test_each_set_of_queues_has_its_own_safety_net(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(server.url)
    added = await add_one(store, queue="b")
    maintainer = await store._maintainer()
    assert await claim_ids(store, 0, queues=["b"]) == await claim_ids(store, 0, queues=["a"]) == []
    await maintainer.line.remove([Entry(added.id, "b")])
    assert await claim_ids(store, queues=["b"]) == []
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 0.0)
    assert await claim_ids(store, queues=["a"]) == []
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 3600.0)
    store._claimer._times[frozenset("b"), None].sql_claimed_at -= 3600.0
    assert await claim_ids(store, queues=["b"]) == [added.id]


async def test_jobs_taken_by_another_between_peek_and_take_hide_no_others(server: Server, open_store: Open) -> None:
    one, other = await open_store(server.url), await open_store(server.url)
    await add_ids(one, *[{"queue": "first"}] * 3)
    behind = await add_ids(one, *[{"queue": "second"}] * 3)
    nodes, rival = (await one._maintainer()).line._nodes, []  # type: ignore[attr-defined]
    ask = nodes.ask

    async def between(*calls: Any) -> list[Any]:
        answers = await ask(*calls)
        if any(call.script is line._PEEK for call in calls) and not rival:
            rival.extend(await claim_ids(other, 3, queues=["first"]))
        return list(answers)

    nodes.ask = between
    claimed = await claim(one, 3)
    assert (len(rival), claimed.jobs, claimed.next_in) == (3, [], seconds(0))
    assert await claim_ids(one, 3) == behind


async def test_jobs_beyond_the_horizon_come_also_after_the_clock_was_set_back(server: Server, tmp_path: Path) -> None:
    clock = TestClock()
    store = LinedStore(SqliteStore(jobs_file(tmp_path), clock=clock), lambda: RedisLine(server.url))
    await store.open()
    maintainer = await store._maintainer()
    await maintainer.sweep()
    clock.step_wall(-3600)
    added = await add_one(store, delay=seconds(1200))
    for _ in range(3):
        await maintainer.sweep()
        clock.turn(300)
    assert (await standing(store, lambda _: True))[0] == [added.id]
    await store.close()


async def test_the_shortest_horizon_reaches_every_job_before_it_is_due(server: Server, tmp_path: Path) -> None:
    clock = TestClock()
    store = LinedStore(
        SqliteStore(jobs_file(tmp_path), clock=clock),
        lambda: RedisLine(server.url),
        horizon=seconds(60),
        ticks=False,
    )
    await store.open()
    maintainer = await store._maintainer()
    due = {(await add_one(store, delay=seconds(s))).id: s for s in (33, 62, 77, 101, 124, 159)}
    for now in range(0, 90, 5):
        await maintainer.sweep()
        there = set((await standing(store, lambda _: True))[0])
        assert {id for id, at in due.items() if at <= now + 50} <= there <= {id for id, at in due.items() if at <= now + 60}
        clock.turn(5)
    await store.close()


async def test_the_line_wakes_a_waiter_of_another_process(server: Server, open_store: Open) -> None:
    one, other = await open_store(server.url), await open_store(server.url)
    with one.subscribe(Topic.READY) as place:
        place.clear()
        maintainer = await other._maintainer()
        await maintainer.line.put([Place("x", "default", 0, 2, 0)], now=1)
        await asyncio.wait_for(place.wait(None), SOON)


async def test_a_line_filled_from_rows_that_the_database_lost_begins_a_new_epoch(server: Server, open_store: Open) -> None:
    """As after a restore of the database: the position that the line was filled up to is ahead of it."""
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    before = await epoch(store)
    await maintainer.line.checkpoint(maintainer.clock.now() + 600_000, str(10**15), filled=True)
    added = await add_one(store.inner, delay=seconds(60))
    await eventually(lambda: epoch(store), lambda now: now > before)
    await trusted(store)
    assert await standing(store) == ([added.id], [])


async def test_a_sweep_leaves_jobs_alone_that_other_processes_have_put(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    first, second = await add_ids(store, {}, {})
    maintainer = await store._maintainer()
    taken = await maintainer.line.take(None, 1, now=maintainer.clock.now(), stale=0)
    assert [entry.id for entry in taken.entries] == [first]
    await maintainer.sweep()
    assert await standing(store) == ([second], [first])


async def test_a_job_that_waits_again_is_put_again(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    added = await add_one(store)
    job = await claim_one(store)
    await settle(store, job, Raised("no", after=seconds(60)))
    assert (await status_of(store, added.id)).waiting
    places, _ = await (await store._maintainer()).line.places()
    assert [place.id for place in places] == [added.id]
