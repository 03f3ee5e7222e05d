"""No wake-up of the line is lost: an event between a look and the sleep after it is answered at once.

Each test holds one process between the two, lets the event happen, and lets it go on. Nothing ticks that could help."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from demora.core.pace import Pace, request_of
from demora.line import LinedStore
from demora.line import maintainer as maintaining
from demora.line.redis import connections, line
from demora.store.jobs import Topic
from demora.store.line_feed import Place
from tests.builders import add_one, claim, claim_ids, seconds
from tests.clock import TestClock
from tests.facts import eventually
from tests.line import bare
from tests.line.conftest import Open
from tests.servers.valkey import Server
from tests.setups import NOTIFIERS

SOON = 5.0  # seconds: well before anything that happens by itself
SLOW = Pace(gap=seconds(600), burst=1, stagger=seconds(600), rapid=None)


@pytest.fixture(autouse=True)
def _no_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    bare.no_nets(monkeypatch)
    monkeypatch.setattr(maintaining, "TICK", 3600.0)
    for notifier in NOTIFIERS:
        monkeypatch.setattr(notifier, "CLOCK_LOOK", 3600.0)


class Gate:
    """Holds a call: before it is made, or when it has its answer."""

    def __init__(self, call: Any, *, before: bool) -> None:
        self._call, self._before = call, before
        self.reached, self._open = asyncio.Event(), asyncio.Event()

    async def __call__(self, *asked: Any, **more: Any) -> Any:
        if self._before:
            await self._hold()
        answer = await self._call(*asked, **more)
        if not self._before:
            await self._hold()
        return answer

    async def _hold(self) -> None:
        self.reached.set()
        await self._open.wait()

    async def wait(self) -> None:
        await asyncio.wait_for(self.reached.wait(), SOON)

    def open(self) -> None:
        self._open.set()


async def notify(store: LinedStore) -> None:
    """Notify the waiters of other processes by the line alone."""
    await (await store._maintainer()).line.put([Place("x", "default", 0, 2, 0)], now=1)


async def test_a_loss_that_a_claim_notices_is_repaired_at_once(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    server.ask("FLUSHALL")
    await claim_ids(store)
    assert not maintainer.trusted
    await eventually(lambda: asyncio.sleep(0, maintainer.trusted), within=SOON)


async def test_a_notification_while_the_line_is_reached_again_wakes_its_waiter(server: Server, open_store: Open) -> None:
    """It arrives before the process listens, or when it does; in either case the waiter looks once more."""
    one, other = await open_store(server.url), await open_store(server.url)
    maintainer = await one._maintainer()
    gate = maintainer.line.listen = Gate(maintainer.line.listen, before=True)  # type: ignore[method-assign]
    with one.subscribe(Topic.READY) as place:
        reached = asyncio.create_task(maintainer._connect())
        await gate.wait()
        place.clear()
        await notify(other)
        gate.open()
        assert await asyncio.wait_for(place.wait(None), SOON)
        await reached


async def test_a_notification_between_the_subscription_and_its_first_reading_is_read(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await open_store(server.url), await open_store(server.url)
    maintainer, gate = await one._maintainer(), Gate(line.next_message, before=True)
    monkeypatch.setattr(line, "next_message", gate)
    await maintainer.line.listen(maintainer._wake)
    with one.subscribe(Topic.READY) as place:
        await gate.wait()
        place.clear()
        await notify(other)
        gate.open()
        assert await asyncio.wait_for(place.wait(None), SOON)


async def test_a_notification_between_a_silence_and_its_ping_is_read(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENCE", 0.05)
    one, other = await open_store(server.url), await open_store(server.url)
    maintainer = await one._maintainer()
    subscribe, gates = maintainer.line._nodes.subscribe, []  # type: ignore[attr-defined]

    async def held(channel: str) -> Any:
        subscription = await subscribe(channel)
        subscription.ping = Gate(subscription.ping, before=True)
        gates.append(subscription.ping)
        return subscription

    maintainer.line._nodes.subscribe = held  # type: ignore[attr-defined]
    await maintainer.line.listen(maintainer._wake)
    with one.subscribe(Topic.READY) as place:
        [gate] = gates
        await gate.wait()
        place.clear()
        await notify(other)
        gate.open()
        assert await asyncio.wait_for(place.wait(None), SOON)


async def test_jobs_that_are_recorded_during_a_sweep_are_put_by_the_next_claim(server: Server, open_store: Open) -> None:
    """As a commit in a caller's own transaction: no process puts its jobs, and a notification tells of them."""
    store = await open_store(server.url)
    gate = store.inner.line_feed.moved = Gate(store.inner.line_feed.moved, before=False)  # type: ignore[method-assign]
    store._note_unplaced()
    first = asyncio.create_task(claim_ids(store))
    await gate.wait()
    added = await add_one(store.inner)
    store._note_unplaced()
    gate.open()
    assert [*await first, *await claim_ids(store)] == [added.id]


async def test_a_release_that_becomes_possible_during_a_claim_is_not_put_off(server: Server, tmp_path: Path) -> None:
    """Delayed jobs have moved, while the answer says when the next release is due."""
    clock = TestClock()
    async with bare.opened("sqlite", tmp_path, clock, 1) as [store]:
        await store.paces.set("default", request_of(SLOW), by="ann")
        await add_one(store, delay=seconds(60))
        gate = store.inner.claim = Gate(store.inner.claim, before=False)  # type: ignore[method-assign]
        looking = asyncio.create_task(claim(store))
        await gate.wait()
        added = await add_one(store.inner, delay=seconds(1))
        clock.turn(1)
        store._wake(True)
        gate.open()
        assert (await looking).jobs == []
        assert await claim_ids(store) == [added.id]
