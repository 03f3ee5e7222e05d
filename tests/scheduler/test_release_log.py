"""What the log says about paces: those in force, what they release and what they hold."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from demora.client.paces import Paces
from demora.core.job import Priority
from demora.core.pace import Pace, Release, request_of
from demora.core.retention import Retention
from demora.core.spans import from_ms
from demora.scheduler.pace_log import ReleaseLog
from demora.scheduler.scheduler import Scheduler
from demora.store.store import Store
from tests.builders import add_ids, claim, seconds
from tests.sim.world import World

SLOW = Pace(gap=seconds(100), burst=2)


def releases(*queues: str) -> Iterable[Release]:
    return [Release(f"{queue}-{n}", queue, Priority.NORMAL, from_ms(0)) for n, queue in enumerate(queues)]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def live(what: Callable[[Store], Awaitable[None]]) -> None:
    """Run this with a store, in virtual time."""
    world = World(1)

    async def run() -> None:
        store = world.store()
        await store.open()
        await what(store)

    world.loop.run_until_complete(run())
    world.close()


def test_after_a_rest_it_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say(store: Store) -> None:
        ReleaseLog(store.paces).add(releases("mail", "mail", "web"))
        await asyncio.sleep(0.1)

    live(say)
    assert lines(caplog) == ["the pace of mail released 2 delayed jobs", "the pace of web released 1 delayed job"]


def test_a_fast_pace_gets_a_line_a_second_with_all_that_was_let_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say(store: Store) -> None:
        tally = ReleaseLog(store.paces)
        for _ in range(250):
            tally.add(releases("mail"))
            await asyncio.sleep(0.01)
        tally.close()

    live(say)
    told = [int(line.split()[-3]) for line in lines(caplog)]
    assert len(told) in (3, 4)
    assert sum(told) == 250


def test_nothing_is_said_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say(store: Store) -> None:
        tally = ReleaseLog(store.paces)
        tally.add([])
        tally.close()

    live(say)
    assert lines(caplog) == []


def test_a_release_is_said_with_what_was_held_and_the_time_since_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "demora")

    async def say(store: Store) -> None:
        tally = ReleaseLog(store.paces)
        await store.paces.set("default", request_of(SLOW), by="ann")
        await add_ids(store, *[{"delay": seconds(1)}] * 3)
        await asyncio.sleep(1)
        for _ in range(2):
            tally.add((await claim(store, 10)).released)
            await asyncio.sleep(30)

    live(say)
    assert lines(caplog) == [
        "the pace of default released 1 of 3 held delayed jobs",
        "the pace of default can release the next job in 30.0 s",
        "the pace of default released 1 of 2 held delayed jobs, 30.0 s after the previous release",
        "the pace of default can release the next job in 70.0 s",
    ]
    facts = [record.facts for record in caplog.records if record.event == "pace.released"]  # type: ignore[attr-defined]
    assert facts == [
        {"queue": "default", "jobs": 1, "held": 3, "after_s": None},
        {"queue": "default", "jobs": 1, "held": 2, "after_s": 30.0},
    ]


def test_a_queue_that_holds_jobs_gets_a_summary_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say(store: Store) -> None:
        await store.paces.set("*", request_of(Pace(gap=seconds(3600), burst=1)), by="ann")
        await add_ids(store, *[{"delay": seconds(1)}] * 3, {"delay": seconds(7200)})
        scheduler = Scheduler(store, Retention())
        running = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(200)
        running.cancel()

    live(say)
    said = [record for record in caplog.records if getattr(record, "event", "") == "pace.holds"]
    assert len(said) == 3
    assert (
        said[0]
        .getMessage()
        .startswith("the pace of default holds 2 of 3 delayed jobs, 2 wait for the gap; next release in ")
    )


# Changes


def watch(what: Callable[[Store, Store], Awaitable[None]], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Do this with the store of a scheduler and that of another process, and return what the scheduler logs about paces."""
    caplog.set_level("INFO")
    world = World(1)

    async def run() -> None:
        own, other = world.store(), world.store()
        await own.open()
        await other.open()
        running = asyncio.ensure_future(Scheduler(own, Retention()).run())
        await asyncio.sleep(1)
        await what(own, other)
        await asyncio.sleep(1)
        running.cancel()

    world.loop.run_until_complete(run())
    world.close()
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "").startswith("pace.")]


def test_a_pace_that_another_process_sets_changes_and_takes_off_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def change(own: Store, other: Store) -> None:
        for pace in (SLOW, Pace(gap=seconds(100), burst=1), None):
            await other.paces.set("mail", pace and request_of(pace), by="ann")
            await asyncio.sleep(70)
        await other.paces.follow("mail", by="bob")

    assert watch(change, caplog) == [
        "the pace of mail was set to 2 in 1m40s, 30s apart; governs both by ann",
        "the pace of mail was set to 1 in 1m40s; governs both by ann",
        "the pace of mail was taken off by ann",
        "the pace of mail was set to that of all queues by bob",
    ]
    facts = [record.facts for record in caplog.records if record.event == "pace.set"]  # type: ignore[attr-defined]
    assert facts[2] == {"queue": "mail", "pace": None, "by": "ann"}


def test_a_change_that_this_process_makes_is_said_once_too(caplog: pytest.LogCaptureFixture) -> None:
    async def change(own: Store, other: Store) -> None:
        client = Paces(own.paces)
        await client.set_pace("mail", SLOW, by="ann")
        await client.take_pace_off("mail", by="ann")
        await client.use_default_pace("mail", by="ann")
        await client.apply_paces({"mail": request_of(SLOW)})

    assert [line.partition(" was ")[2] for line in watch(change, caplog)] == [
        "set to 2 in 1m40s, 30s apart; governs both by ann",
        "taken off by ann",
        "set to that of all queues by ann",
        "set to 2 in 1m40s, 30s apart; governs both by settings",
    ]


def test_without_a_scheduler_the_caller_says_what_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def change(store: Store) -> None:
        client = Paces(store.paces)
        await client.set_pace("mail", SLOW, by="ann")
        await client.take_pace_off("mail", by="ann")
        await client.use_default_pace("mail", by="ann")

    live(change)
    assert [line.partition(" was ")[2] for line in lines(caplog)] == [
        "set to 2 in 1m40s, 30s apart; governs both by ann",
        "taken off by ann",
        "set to that of all queues by ann",
    ]


def test_that_the_pace_of_all_queues_leaves_demoras_own_out_is_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def change(own: Store, other: Store) -> None:
        await other.paces.set("*", request_of(SLOW), by="ann")

    assert watch(change, caplog) == ["the pace of all queues was set to 2 in 1m40s, 30s apart; governs both by ann"]


def test_a_process_says_at_its_start_which_paces_are_in_force(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say(store: Store) -> None:
        await store.paces.set("*", request_of(Pace(gap=seconds(10), burst=5)), by="settings")
        await store.paces.set("mail", request_of(SLOW), by="ann")
        await add_ids(store, {"queue": "web", "delay": seconds(1)})
        running = asyncio.ensure_future(Scheduler(store, Retention()).run())
        await asyncio.sleep(0.1)
        running.cancel()

    live(say)
    assert lines(caplog) == [
        "all queues without a pace of their own have the pace 5 in 10s, 2s apart; governs both (by settings)",
        "mail has the pace 2 in 1m40s, 30s apart; governs both (by ann)",
    ]
