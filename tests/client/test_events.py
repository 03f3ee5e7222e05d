"""Listening to events: one reader for all listeners, filters, resuming, and listeners that do not listen."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from demora import Demora
from demora.client import events as reading
from demora.client.client import Client
from demora.core.events import Event, EventKind
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid, ListenerTooSlow
from demora.store.jobs import Report
from tests.builders import BROKEN, claim_one, run_one, seconds, settle
from tests.clock import TestClock
from tests.facts import eventually
from tests.servers.nearby import serving

SAMPLED = {"job.started", "job.progress"}
SOON = 10.0  # seconds within which an event must come


class CountingStore(SqliteStore):
    """A store that counts how often it is looked at for events."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.looks = 0
        inner = self.events.settled

        async def settled(*args: Any) -> Any:
            self.looks += 1
            return await inner(*args)

        self.events.settled = settled  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOK", 0.01)
    monkeypatch.setattr(reading, "PAUSE", 0.001)


@pytest.fixture
def store(clock: TestClock) -> CountingStore:
    return CountingStore(clock=clock)


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[Client]:
    async with Demora(store=store) as app:
        yield await app.open()


@pytest.fixture(params=["direct", "over HTTP"])
async def either(request: pytest.FixtureRequest, store: CountingStore) -> AsyncIterator[Client]:
    """The client of an application, or one of its service."""
    async with Demora(store=store) as app:
        if request.param == "direct":
            yield await app.open()
            return
        async with serving(app) as url, Demora(url) as other:
            yield await other.open()


async def hear(events: reading.EventStream, *kinds: str) -> list[Event]:
    """The next events, which must be of these kinds. Those that are told only if a look falls between are skipped."""
    heard: list[Event] = []
    async with asyncio.timeout(SOON):
        while len(heard) < len(kinds):
            event = await anext(events)
            if event.kind in kinds or event.kind not in SAMPLED:
                heard.append(event)
    assert [event.kind for event in heard] == list(kinds)
    return heard


async def position_of(events: reading.EventStream) -> str:
    return events.position


async def readers() -> int:
    return sum(task.get_name() == "demora-events" for task in asyncio.all_tasks())


async def test_a_listener_hears_the_life_of_a_job(either: Client, store: CountingStore, clock: TestClock) -> None:
    async with either.events() as events:
        job = await either.enqueue("demo.echo", {"secret": 1}, tags=["a"])
        [added] = await hear(events, "job.added")
        assert added.job is not None
        assert (added.job.id, added.queue, added.at) == (job.id, "default", job.created_at)
        claimed = await claim_one(store)
        [started] = await hear(events, "job.started")
        assert started.job is not None
        assert started.job.worker_id == "ann"
        await store.renew([Report(claimed.lease, seconds(1), progress=0.5, message="half")], lease=seconds(30))
        [progress] = await hear(events, "job.progress")
        assert progress.job is not None
        assert (progress.job.progress, progress.job.progress_message) == (0.5, "half")
        await settle(store, claimed, BROKEN)
        [failed] = await hear(events, "job.failed")
        assert failed.job is not None
        assert failed.job.error == "ValueError: no"


async def test_a_listener_hears_of_queues(client: Client) -> None:
    async with client.events(queue="mail") as events:
        await client.pause("mail", reason="full", by="ann")
        [paused] = await hear(events, "queue.paused")
        assert (paused.queue, paused.reason, paused.by) == ("mail", "full", "ann")
        await client.resume("mail")
        await hear(events, "queue.resumed")
        await client.set_pace("mail", burst=2, by="ann")
        [paced] = await hear(events, "queue.pace")
        assert paced.pace is not None
        assert paced.pace.burst == 2


async def test_a_job_is_never_told_to_have_ended_before_it_was_added(either: Client, store: CountingStore) -> None:
    async with either.events() as events:
        for _ in range(20):
            await either.enqueue("demo.echo")
            await run_one(store)
        seen: set[str] = set()
        ended = 0
        while ended < 20:
            async with asyncio.timeout(SOON):
                event = await anext(events)
            assert event.job is not None
            assert (event.kind is EventKind.ADDED) == (event.job.id not in seen)
            seen.add(event.job.id)
            ended += event.kind is EventKind.COMPLETED


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"queue": "mail"}, [1]),
        ({"type": "demo.sleep"}, [2]),
        ({"tag": "a"}, [0, 2]),
        ({"tag": "a", "type": "demo.echo"}, [0]),
        ({}, [0, 1, 2]),
    ],
)
async def test_a_listener_hears_only_what_it_asked_for(either: Client, filters: dict[str, str], wanted: list[int]) -> None:
    async with either.events(**filters) as events:
        jobs = [
            await either.enqueue("demo.echo", tags=["a", "b"]),
            await either.enqueue("demo.echo", queue="mail"),
            await either.enqueue("demo.sleep", {"seconds": 1}, tags=["a"]),
        ]
        heard = await hear(events, *["job.added"] * len(wanted))
        assert [event.job and event.job.id for event in heard] == [jobs[number].id for number in wanted]


async def test_a_listener_may_ask_for_one_job(either: Client, store: CountingStore) -> None:
    first = await either.enqueue("demo.echo")
    async with either.events(job=first.id.upper()) as events:
        await either.enqueue("demo.echo")
        await run_one(store)
        await run_one(store)
        [ended] = await hear(events, "job.completed")
        assert ended.job is not None
        assert ended.job.id == first.id


async def test_without_a_listener_nothing_is_read(client: Client, store: CountingStore) -> None:
    async with client.events() as events:
        await client.enqueue("demo.echo")
        await hear(events, "job.added")
    looks = store.looks
    await client.enqueue("demo.echo")
    await run_one(store)
    for _ in range(100):
        await asyncio.sleep(0)
    assert store.looks == looks
    assert await readers() == 0


async def test_many_listeners_share_one_reader(client: Client, store: CountingStore) -> None:
    streams = [client.events() for _ in range(1000)]
    await asyncio.gather(*[stream.begin() for stream in streams])
    assert await readers() == 1
    await client.enqueue("demo.echo")
    for stream in streams:
        await hear(stream, "job.added")
        stream.close()
    await eventually(readers, lambda number: number == 0)


async def test_for_a_listener_that_is_in_no_hurry_the_database_is_read_less_often(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK", 60.0)
    async with Demora(store=store) as app:
        client = await app.open()
        unhurried = await reading.EventReader(store).join(60.0)
        async with client.events() as events:
            for _ in range(10):  # the reader of others has looked as often
                await client.cancel((await client.enqueue("demo.echo")).id)
                await hear(events, "job.added", "job.cancelled")
        assert unhurried.pending == 0


async def test_a_listener_in_a_hurry_waits_for_no_other(
    client: Client, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOOK", 60.0)
    async with client.events().every(60.0) as unhurried:
        while not store.looks:
            await client.queues()
        for _ in range(5):  # it has looked for the first time, and would look again in a minute
            await client.queues()
        async with client.events() as events:
            await client.cancel((await client.enqueue("demo.echo")).id)
            await hear(events, "job.added", "job.cancelled")
        await hear(unhurried, "job.added", "job.cancelled")


async def test_a_listener_that_resumes_hears_the_latest_end_of_each_job(client: Client, store: CountingStore) -> None:
    async with client.events() as events:
        await client.enqueue("demo.echo")
        await run_one(store)
        position = (await hear(events, "job.added", "job.completed"))[-1].position
    again = await client.enqueue("demo.echo", max_retries=0)
    await run_one(store, BROKEN)
    await client.retry(again.id)
    await run_one(store)
    other = await client.enqueue("demo.echo")
    await client.cancel(other.id)
    async with client.events(after=position) as events:
        heard = await hear(events, "job.completed", "job.cancelled")
        assert [event.job and event.job.id for event in heard] == [again.id, other.id]
        await client.enqueue("demo.echo")
        await hear(events, "job.added")
    async with client.events(after=heard[0].position) as events:
        await hear(events, "job.completed", "job.cancelled")  # the second one was not acknowledged
    async with client.events(after=heard[1].position) as events:
        await client.enqueue("demo.echo")
        await hear(events, "job.added")


async def test_a_listener_without_events_can_resume_from_its_position(client: Client, store: CountingStore) -> None:
    async with client.events(queue="other") as events:
        await client.enqueue("demo.echo")
        await run_one(store)
        before = events.position
        waiting = asyncio.ensure_future(anext(events))
        position = await eventually(lambda: position_of(events), lambda position: position != before)
        waiting.cancel()
    async with client.events(after=position) as events:
        await client.enqueue("demo.echo", queue="mail")
        await hear(events, "job.added")


@pytest.mark.parametrize("after", ["", "never", "999999"])
async def test_an_unknown_position_is_answered_with_a_reset(either: Client, after: str) -> None:
    async with either.events(queue="mail", after=after) as events:
        [reset] = await hear(events, "reset")
        assert reset.position == events.position
        await either.enqueue("demo.echo", queue="mail")
        await hear(events, "job.added")


async def test_a_position_that_is_too_old_is_answered_with_a_reset(
    client: Client, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 2)
    monkeypatch.setattr(reading, "MOST_REPLAYED", 4)
    async with client.events() as events:
        position = events.position
    for _ in range(5):
        await client.enqueue("demo.echo")
        await run_one(store)
    async with client.events(after=position) as events:
        heard = await hear(events, *["job.completed"] * 4, "reset")
    assert {event.position for event in heard[:4]} == {position}


async def test_a_slow_listener_is_cut_off_and_others_hear_all(
    client: Client, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_PENDING", 4)
    async with client.events() as slow, client.events() as quick:
        for _ in range(3):
            await client.enqueue("demo.echo")
            await run_one(store)
            await hear(quick, "job.added", "job.completed")
        with pytest.raises(ListenerTooSlow) as problem:
            await anext(slow)
    async with client.events(after=problem.value.position) as again:
        await hear(again, "job.completed", "job.completed", "job.completed")


async def test_a_stream_ends_when_the_store_is_closed(store: CountingStore) -> None:
    async with Demora(store=store) as app:
        events = (await app.open()).events()
        await events.begin()
    async with asyncio.timeout(SOON):
        assert [event async for event in events] == []


async def test_a_stream_goes_on_that_begins_when_the_last_one_ends(client: Client, store: CountingStore) -> None:
    last = client.events()
    await last.begin()
    last.close()
    async with client.events() as events:  # while the reader of the last one stops
        await eventually(readers, lambda number: number == 1)
        assert not events.ended
        await client.enqueue("demo.echo")
        await run_one(store)
        await hear(events, "job.added", "job.completed")


async def test_a_listener_that_gives_up_a_wait_hears_what_it_missed_later(client: Client, store: CountingStore) -> None:
    async with client.events() as events:
        position = events.position
    for _ in range(3):
        await client.enqueue("demo.echo")
        await run_one(store)
    async with client.events(after=position) as events:
        waiting = asyncio.ensure_future(events.wait())
        await asyncio.sleep(0)  # it reads what was missed
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await hear(events, "job.completed", "job.completed", "job.completed")


async def test_a_listener_that_is_dropped_leaves(client: Client) -> None:
    async for event in client.events(after="never"):
        assert event.kind is EventKind.RESET
        break
    await eventually(readers, lambda number: number == 0)


@pytest.mark.parametrize(
    "filters", [{"queue": "a b"}, {"type": ""}, {"tag": ""}, {"job": ""}, {"job": "x" * 37}, {"after": "1" * 20_000}]
)
async def test_a_malformed_filter_is_refused(either: Client, filters: dict[str, str]) -> None:
    with pytest.raises(Invalid) as problem:
        either.events(**filters)
    assert problem.value.field == next(iter(filters))
