"""Filling a line while jobs move: however a verb falls between the pages of the walk, the line then holds every waiting job.

No net is up that could heal a fault before the test sees it: nothing ticks, no claim asks SQL alone, and no job is handed
out twice. The filling is held before and after each of its steps: the position, each page of the walk, each write to the
line. Then the verb runs, in the process that fills the line, in another one that has begun the same epoch, or in one whose
line is lost and that puts nothing. What that one does after the walk, the next sweep finds, as after a crash.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from demora.core.job import Lane, Priority, Unique
from demora.core.pace import Pace, request_of
from demora.core.states import Status
from demora.core.verdict import HandedBack, Raised
from demora.line import LinedStore, filling
from demora.store.jobs import Change, ClaimedJob
from demora.store.line_feed import Place
from tests.builders import (
    DONE,
    LEASE,
    add_ids,
    add_one,
    claim,
    claim_ids,
    claim_one,
    ended_one,
    seconds,
    settle,
    settle_lapsed,
)
from tests.clock import TestClock
from tests.line import bare
from tests.line.bare import Deed

PAGE = 2  # rows, so that a few jobs make several pages
PAGES = 2  # of the walk, at least
HELD = {"one": ("walk",), "beside": ("walk", "moved", "put"), "without": ("position", "walk")}  # the steps, by who acts


class Processes(NamedTuple):
    """The stores of three processes on one database. `one` fills the line."""

    one: LinedStore
    beside: LinedStore
    without: LinedStore
    clock: TestClock


pytestmark = pytest.mark.slow  # many interleavings


@pytest.fixture(params=bare.ENGINES)
async def processes(
    request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Processes]:
    bare.no_nets(monkeypatch)
    monkeypatch.setattr(filling, "FILL_PAGE", PAGE)
    async with bare.opened(request.param, tmp_path, clock, 3) as stores:
        yield Processes(*stores, clock)


# What each process may do to a job meanwhile. The first part prepares the job and returns the deed.

Preparation = Callable[[LinedStore, TestClock], Awaitable[Deed]]


async def add(store: LinedStore, clock: TestClock) -> Deed:
    return lambda: add_ids(store, {}, {"delay": seconds(5)}, {"queue": "z"})


async def bring_forward(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(60))).id
    return lambda: store.change(id, Change(at=clock.now() + seconds(1)))


async def put_off(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(10))).id
    return lambda: store.change(id, Change(at=clock.now() + seconds(70)))


async def put_off_beyond_the_horizon(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(10))).id
    return lambda: store.change(id, Change(at=clock.now() + seconds(9000)))


async def favour(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(10))).id
    return lambda: store.change(id, Change(priority=Priority.CRITICAL))


async def cancel(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(10))).id
    return lambda: store.cancel([id])


async def cancel_and_retry(store: LinedStore, clock: TestClock) -> Deed:
    id = (await add_one(store, delay=seconds(60))).id

    async def both() -> None:
        await store.cancel([id])
        await store.retry([id])

    return both


async def retry(store: LinedStore, clock: TestClock) -> Deed:
    id = await ended_one(store, Status.FAILED, queue="failed")
    return lambda: store.retry([id])


async def fail(store: LinedStore, clock: TestClock) -> Deed:
    job = await _claimed(store, "running")
    return lambda: settle(store, job, Raised("no", after=seconds(3)))


async def hand_back(store: LinedStore, clock: TestClock) -> Deed:
    job = await _claimed(store, "running")
    return lambda: settle(store, job, HandedBack())


async def lapse(store: LinedStore, clock: TestClock) -> Deed:
    await _claimed(store, "running")
    clock.turn(LEASE.total_seconds())
    return lambda: settle_lapsed(store)


async def release(store: LinedStore, clock: TestClock) -> Deed:
    queue = f"paced {secrets.token_hex(4)}"
    pace = Pace(gap=seconds(1000), burst=2, stagger=seconds(1), rapid=None)
    await store.paces.set(queue, request_of(pace), by="ann")
    await add_one(store, queue=queue, delay=seconds(1))
    clock.turn(1)
    return store.paces.release


async def replace(store: LinedStore, clock: TestClock) -> Deed:
    unique = Unique("k", replace=True)
    await add_one(store, unique=unique, delay=seconds(60))
    return lambda: add_one(store, unique=unique, queue="z", delay=seconds(2))


async def tell(store: LinedStore, clock: TestClock) -> Deed:
    """End a job whose webhook is recorded with its end."""
    job = await _claimed(store, "running", webhook_url="https://example.com/")
    return lambda: settle(store, job, Raised("no", permanent=True))


async def take(store: LinedStore, clock: TestClock) -> Deed:
    return lambda: claim(store, 1, queues=["default"])


async def _claimed(store: LinedStore, queue: str, **job: Any) -> ClaimedJob:
    await add_one(store, queue=queue, **job)
    return await claim_one(store, queues=[queue])


DEEDS: list[Preparation] = [add, bring_forward, put_off, put_off_beyond_the_horizon, favour, cancel, cancel_and_retry]
DEEDS += [retry, fail, hand_back, lapse, release, replace, tell, take]


def meanwhile(processes: Processes, by: str, deed: Deed) -> Deed:
    """The deed, in a process that has begun the new epoch if it is `beside`."""

    async def reconnect_first() -> None:
        await bare.reconnect(processes.beside)
        await deed()

    return reconnect_first if by == "beside" else deed


@pytest.mark.parametrize("by", Processes._fields[:3])
@pytest.mark.parametrize("prepare", DEEDS, ids=lambda prepare: prepare.__name__)
async def test_nothing_falls_out_of_a_line_that_is_being_filled(processes: Processes, prepare: Preparation, by: str) -> None:
    for at in count(1):
        actor: LinedStore = getattr(processes, by)
        await bare.reconnect(actor)
        await add_ids(processes.one, {}, {"delay": seconds(20)}, {"queue": "z"})
        deed = await prepare(actor, processes.clock)
        held = meanwhile(processes, by, deed)
        if not await bare.beside(processes.one, processes.one.rebuild, held, at=at, steps=HELD[by]):
            assert at > 2 * PAGES
            return
        assert (await processes.one._maintainer()).trusted
        if by != "without":
            await bare.reconnect(actor)
            await claim(actor, 0)  # puts the delivery that it recorded, if it could not before
        compared = await processes.one.reconcile()
        assert (compared.away, compared.missing) == (None, ()), f"at point {at}"
        await drain(processes, f"at point {at}")


async def drain(processes: Processes, where: str) -> None:
    """Turn the clock from one due time to the next, and see that the line hands out all jobs that are then due, and no
    others. What is left in it then are entries of jobs that ended or left while their page was in hand: it drops them."""
    one, clock = processes.one, processes.clock
    while waiting := await _waiting(one):
        first = min(place.due_at for place in waiting)
        clock.turn(ms=max(first - clock.wall(), 0))
        due = {place.id for place in waiting if place.due_at <= clock.wall()}
        claimed = (await claim(one)).jobs
        assert {job.lease.id for job in claimed} == due, where
        for job in claimed:
            await settle(one, job, DONE)
    clock.turn(filling.HORIZON.total_seconds())
    assert await claim_ids(one) == [], where
    places, _ = await (await one._maintainer()).line.places()
    assert places == [], where


async def _waiting(store: LinedStore) -> list[Place]:
    """The jobs that wait, by SQL, and that no pace holds."""
    places = (await store.inner.line_feed.walk(seconds(100_000), 1000)).places
    return [place for place in places if not place.queue.startswith("paced") or place.lane == Lane.RELEASED]
