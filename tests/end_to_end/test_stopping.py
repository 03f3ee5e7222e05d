"""SIGTERM: stop claiming, let what runs end within the grace, hand back the rest, exit."""

import asyncio
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

from demora import Demora, Status
from tests.end_to_end.processes import World
from tests.facts import eventually
from tests.stalls import Stalls

pytestmark = pytest.mark.slow


@pytest.mark.timed
async def test_sigterm_hands_back_eight_running_jobs_within_the_grace(
    world: World, app: Demora, stalls: Stalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_GRACE", "1s")
    worker = world.start_worker("--concurrency", "8")
    jobs = await app.enqueue_many([("hang", {"times": 99})] * 8)
    await eventually(lambda: begun(world, 8), bool)
    asked = datetime.now(UTC)
    assert await world.terminate(worker) == 0
    gone = datetime.now(UTC)
    assert gone - asked - await stalls.between(asked, gone) < timedelta(seconds=1 + 1)
    for job in jobs:
        found = await app.get(job.id)
        assert (found.status, found.attempt, found.attempts) == (Status.QUEUED, 0, ())


async def begun(world: World, number: int) -> bool:
    return len(world.events("begin")) == number


async def test_a_rolling_restart_burns_no_attempt_and_loses_nothing(world: World, app: Demora) -> None:
    worker = await started(world, app)
    jobs = []
    for _ in range(3):
        jobs += await app.enqueue_many([("quick", {})] * 200)
        before, worker = worker, await started(world, app)
        assert await world.terminate(before) == 0
    for job in jobs:
        found = await app.wait(job.id, "60s")
        assert (found.status, found.retry_count) == (Status.COMPLETED, 0)


async def started(world: World, app: Demora) -> subprocess.Popen[bytes]:
    """A worker that has registered itself."""
    worker, client = world.start_worker(), await app.open()
    await eventually(client.workers, lambda found: worker.pid in [one.pid for one in found])
    return worker


@pytest.mark.timed
async def test_a_worker_in_another_process_wakes_within_25_ms_of_an_add(world: World, app: Demora) -> None:
    world.start_worker()
    await app.wait((await app.enqueue("quick")).id, "20s")
    late = []
    for _ in range(20):
        job = await app.enqueue("quick")
        returned = time.time()
        await app.wait(job.id, "20s")
        [event] = [event for event in world.events("begin") if event.id == job.id]
        late.append(event.at - returned)
    assert sorted(late)[len(late) // 2] < 0.025


async def test_two_hundred_parallel_enqueues_with_one_key_make_one_job(app: Demora) -> None:
    jobs = await asyncio.gather(*(app.enqueue("quick", {}, key="once") for _ in range(200)))
    assert len({job.id for job in jobs}) == 1
    assert len((await app.find()).jobs) == 1
