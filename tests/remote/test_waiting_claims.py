"""Claims that wait: a ready job reaches one of them, however many wait, and does not wake the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from demora import Demora, Status
from demora.client.workers import waiting_claims
from demora.client.workers.remote_workers import HandedJob, RemoteWorkers
from demora.core.verdict import Succeeded
from demora.errors import StoreError
from demora.store.jobs import Subscription, Topic
from tests.facts import eventually
from tests.setups import SETUPS, Setup

CROWD = 40
LONG = timedelta(seconds=30)
SETUP = next(setup for setup in SETUPS if setup.name == "sqlite-file")


class Crowd:
    """Remote workers of one process, and the claims that the store has seen."""

    def __init__(self, app: Demora, workers: RemoteWorkers, asleep: list[str]) -> None:
        self.app, self.workers, self.asleep = app, workers, asleep
        self.claims = 0
        self.ended = asyncio.Event()

    async def claiming(self, number: int, *types: str, limit: int = 1) -> "list[asyncio.Task[list[HandedJob]]]":
        """Claims that wait, each of a worker of its own."""
        before, tasks = len(self.asleep), []
        for n in range(number):
            worker = await self.workers.register(f"w{n}", types, slots=1)
            tasks.append(asyncio.create_task(self.workers.claim(worker, limit, wait=LONG, ended=self.ended)))
        await eventually(self._slept, lambda slept: slept >= before + number)
        self.claims = 0
        return tasks

    async def _slept(self) -> int:
        return len(self.asleep)


@pytest.fixture
async def crowd(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowd]:
    async with Demora("sqlite://") as app:
        client = await app.open()
        asleep, sleep, claim = list[str](), client.remote_workers._sleep, client.store.claim
        crowd = Crowd(app, client.remote_workers, asleep)

        async def sleeping(worker: Any, *args: Any) -> None:
            asleep.append(worker.id)
            await sleep(worker, *args)

        async def counted(*args: Any, **options: Any) -> Any:
            crowd.claims += 1
            return await claim(*args, **options)

        monkeypatch.setattr(client.remote_workers, "_sleep", sleeping)
        monkeypatch.setattr(client.store, "claim", counted)
        yield crowd


async def test_a_job_wakes_only_as_many_claims_as_it_needs(crowd: Crowd) -> None:
    waiting = await crowd.claiming(CROWD, "a")
    others = await crowd.claiming(CROWD, "b")
    await crowd.app.enqueue("a")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert [len(task.result()) for task in done] == [1]
    crowd.ended.set()
    assert sum(len(jobs) for jobs in await asyncio.gather(*waiting, *others)) == 1
    assert crowd.claims <= 4  # one of each kind, and two more because the first got all it asked for


async def test_as_many_claims_wake_as_there_are_jobs(crowd: Crowd) -> None:
    waiting = await crowd.claiming(CROWD, "a")
    await crowd.app.enqueue_many([("a", None)] * CROWD)
    async with asyncio.timeout(10):
        got = await asyncio.gather(*waiting)
    assert [len(jobs) for jobs in got] == [1] * CROWD
    assert len({jobs[0].job.lease.id for jobs in got}) == CROWD


async def test_one_claim_wakes_when_a_delayed_job_comes_due(crowd: Crowd) -> None:
    await crowd.app.enqueue("a", delay="300ms")
    waiting = await crowd.claiming(CROWD, "a")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert [len(task.result()) for task in done] == [1]
    crowd.ended.set()
    await asyncio.gather(*waiting)
    assert crowd.claims <= 6


async def test_a_claim_that_ends_as_it_is_woken_passes_the_wake_up_on(crowd: Crowd) -> None:
    first, *others = await crowd.claiming(3, "a")
    [group] = crowd.workers._waiting._groups.values()
    next(iter(group.asleep)).wake()  # the claim that the job would wake
    first.cancel()
    job = await crowd.app.enqueue("a")
    done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert [jobs[0].job.lease.id for jobs in (task.result() for task in done)] == [job.id]
    crowd.ended.set()
    await asyncio.gather(*others)


async def test_a_claim_that_has_ended_takes_no_wake_up(crowd: Crowd) -> None:
    claims, kind = crowd.workers._waiting, ((), ("a",))
    with claims.claiming(kind) as other:
        with claims.claiming(kind) as ending:
            ending.clear()
            first = asyncio.ensure_future(ending.wait(10))
            await asyncio.sleep(0)
            other.clear()
            second = asyncio.ensure_future(other.wait(10))
            await asyncio.sleep(0)
            first.cancel()  # as when the caller is gone: the task ends a turn of the event loop later
        [group] = claims._groups.values()
        group.wake(1)
        async with asyncio.timeout(5):
            assert await second


async def test_a_claim_that_fails_passes_the_wake_up_on(crowd: Crowd) -> None:
    claims, kind = crowd.workers._waiting, ((), ("a",))
    with claims.claiming(kind) as other:
        other.clear()
        waiting = asyncio.ensure_future(other.wait(10))
        await asyncio.sleep(0)
        with contextlib.suppress(StoreError), claims.claiming(kind) as failing:
            failing.clear()  # as a claim that was woken, and reads the store now
            raise StoreError("as asked")
        assert await waiting


@pytest.mark.parametrize("trouble", [StoreError("as asked"), ZeroDivisionError("as asked")])
async def test_claims_are_woken_again_after_an_error_of_their_subscription(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    monkeypatch.setattr(waiting_claims, "PAUSE", 0.01)
    store, raised = (await crowd.app.open()).store, asyncio.Event()
    subscribe = store.subscribe

    @contextlib.contextmanager
    def troubled(topic: Topic) -> Iterator[Subscription]:
        with subscribe(topic) as subscription:
            wait = subscription.wait

            async def failing(seconds: float | None) -> bool:
                if not raised.is_set():
                    raised.set()
                    raise trouble
                return await wait(seconds)

            monkeypatch.setattr(subscription, "wait", failing)
            yield subscription

    monkeypatch.setattr(store, "subscribe", troubled)
    [waiting] = await crowd.claiming(1, "a")
    await raised.wait()
    job = await crowd.app.enqueue("a")
    async with asyncio.timeout(10):
        [handed] = await waiting
    assert handed.job.lease.id == job.id
    reported = [record.getMessage() for record in caplog.records if "as asked" in record.getMessage()]
    assert len(reported) == isinstance(trouble, ZeroDivisionError)  # the claims report a store in trouble


async def test_no_subscription_is_left_when_no_claim_waits(crowd: Crowd) -> None:
    before = len(asyncio.all_tasks())
    waiting = await crowd.claiming(3, "a")
    crowd.ended.set()
    await asyncio.gather(*waiting)
    await eventually(_tasks, lambda left: left <= before)
    crowd.ended.clear()
    [again] = await crowd.claiming(1, "a")
    job = await crowd.app.enqueue("a")
    async with asyncio.timeout(10):
        [handed] = await again
    assert handed.job.lease.id == job.id


async def test_a_crowd_runs_everything(tmp_path: Any, clock: Any) -> None:
    """Workers that claim, settle and claim again, while jobs come in ones and in batches, on a file."""
    setup: Setup = SETUP
    async with Demora(store=setup.make(tmp_path, clock)) as app:
        workers, ended = (await app.open()).remote_workers, asyncio.Event()

        async def work(n: int) -> None:
            worker = await workers.register(f"w{n}", ["a", f"only.{n % 3}"], slots=2)
            while not ended.is_set():
                jobs = await workers.claim(worker, 1 + n % 2, wait=LONG, ended=ended)
                await workers.settle(worker, [(one.job.lease, Succeeded(b"1")) for one in jobs])

        working = [asyncio.ensure_future(work(n)) for n in range(10)]
        jobs = []
        for n in range(30):
            jobs.append(await app.enqueue(f"only.{n % 3}" if n % 2 else "a"))
            jobs += await app.enqueue_many([("a", None)] * (n % 4))
        for job in jobs:
            assert (await app.wait(job.id, "60s")).status is Status.COMPLETED
        ended.set()
        await asyncio.gather(*working)


async def _tasks() -> int:
    return len(asyncio.all_tasks())
