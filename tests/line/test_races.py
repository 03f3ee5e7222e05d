"""Two processes move one job at the same time: whichever writes to the line last, the line then agrees with the row.

No net is up that could heal a difference: nothing ticks, no claim asks SQL alone, and no job is handed out twice. The first
process is held before and after each of its steps, and the second one then runs its verb to the end.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from demora.core.job import Priority, Unique
from demora.line import LinedStore
from demora.store.jobs import Change
from tests.builders import DONE, add_one, claim, seconds, settle
from tests.clock import TestClock
from tests.line import bare

pytestmark = pytest.mark.slow  # many interleavings


class Job(NamedTuple):
    """A job that both move."""

    id: str
    unique: Unique
    clock: TestClock


async def bring_forward(store: LinedStore, job: Job) -> object:
    return await store.change(job.id, Change(at=job.clock.now() + seconds(1)))


async def put_off(store: LinedStore, job: Job) -> object:
    return await store.change(job.id, Change(at=job.clock.now() + seconds(200)))


async def favour(store: LinedStore, job: Job) -> object:
    return await store.change(job.id, Change(priority=Priority.CRITICAL))


async def cancel(store: LinedStore, job: Job) -> object:
    return await store.cancel([job.id])


async def cancel_and_retry(store: LinedStore, job: Job) -> object:
    await store.cancel([job.id])
    return await store.retry([job.id])


async def retry(store: LinedStore, job: Job) -> object:
    return await store.retry([job.id])


async def replace(store: LinedStore, job: Job) -> object:
    return await add_one(store, unique=job.unique, delay=seconds(2))


async def take(store: LinedStore, job: Job) -> object:
    """Claim the job if it is due, and run it."""
    for claimed in (await claim(store)).jobs:
        await settle(store, claimed, DONE)
    return None


async def sweep(store: LinedStore, job: Job) -> object:
    return await (await store._maintainer()).sweep()


VERBS: list[Callable[[LinedStore, Job], Awaitable[object]]] = [bring_forward, put_off, favour, cancel, cancel_and_retry]
VERBS += [retry, replace, take, sweep]


def _named(verb: Any) -> str:
    return str(verb.__name__)


@pytest.fixture(params=bare.ENGINES)
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[LinedStore]]:
    bare.no_nets(monkeypatch)
    async with bare.opened(request.param, tmp_path, clock, 2) as stores:
        yield stores


@pytest.mark.parametrize("first", VERBS, ids=_named)
async def test_the_line_agrees_with_the_row_whoever_writes_last(
    stores: list[LinedStore], clock: TestClock, first: Callable[[LinedStore, Job], Awaitable[object]]
) -> None:
    one, other = stores
    for second in VERBS[:-1]:
        for at in count(1):
            job = await due_now(one, clock) if take in (first, second) else await due_later(one, clock)
            where = f"{_named(second)} at point {at} of {_named(first)}"
            if not await bare.beside(one, lambda job=job: first(one, job), lambda job=job, do=second: do(other, job), at=at):  # type: ignore[misc]
                break
            compared = await other.reconcile()
            assert (compared.missing, compared.misplaced) == ((), ()), where
            assert not compared.surplus or first is take, where  # it was moved in the line between the take and the lease
            await settled(stores, job)


async def due_later(store: LinedStore, clock: TestClock) -> Job:
    unique = Unique("k", replace=True)
    return Job((await add_one(store, unique=unique, delay=seconds(60))).id, unique, clock)


async def due_now(store: LinedStore, clock: TestClock) -> Job:
    unique = Unique("k", replace=True)
    return Job((await add_one(store, unique=unique)).id, unique, clock)


async def settled(stores: list[LinedStore], job: Job) -> None:
    """Have each job claimed by the line when it is due, and end. Nothing is then left in the line."""
    one, other = stores
    while waiting := (await one.inner.line_feed.walk(seconds(1000), 10)).places:
        job.clock.turn(ms=max(min(place.due_at for place in waiting) - job.clock.wall(), 0))
        due = {place.id for place in waiting if place.due_at <= job.clock.wall()}
        claimed = (await claim(other)).jobs
        assert {run.lease.id for run in claimed} == due
        for run in claimed:
            await settle(other, run, DONE)
    assert (await claim(other)).jobs == []
    for store in stores:
        await (await store._maintainer()).line.done([])
    assert await (await other._maintainer()).line.places() == ([], [])
