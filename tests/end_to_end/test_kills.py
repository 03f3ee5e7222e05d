"""Workers are killed for real, and every job ends exactly once."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from demora import Demora, Job, Status
from tests.end_to_end.processes import Event, World
from tests.facts import eventually
from tests.stalls import Stalls

pytestmark = [pytest.mark.slow, pytest.mark.timed]

KILLS = 20
LEASE = timedelta(seconds=1)
RETRY_DELAY = timedelta(milliseconds=150)


async def test_twenty_kills_in_mid_job_lose_nothing_and_recover_on_time(world: World, app: Demora, stalls: Stalls) -> None:
    others = []
    for _ in range(2):
        world.start_worker("--lease", "1s", "--concurrency", "4")
    for round in range(KILLS):
        others += await app.enqueue_many([("quick", {})] * 10)
        times = 1 + round % 2  # every second job loses two workers
        job = await app.enqueue("hang", {"times": times}, retry_delay=RETRY_DELAY)
        for attempt in range(1, times + 1):
            await kill_in_mid_job(world, app, job, attempt, stalls)
        await check_recovery(await app.wait(job.id, "60s"), times, stalls)
    await check_all_ended_once(world, app, others)


async def kill_in_mid_job(world: World, app: Demora, job: Job, attempt: int, stalls: Stalls) -> None:
    """Kill the worker that runs this attempt; see that the lapse is settled in time and the next attempt begins."""
    begun = await eventually(lambda: begun_in(world, job, attempt))
    world.kill(begun.pid)
    killed_at = datetime.now(UTC)
    lapsed = await eventually(lambda: app.get(job.id), lambda found: len(found.attempts) >= attempt)
    ended_at = lapsed.attempts[attempt - 1].ended_at
    assert ended_at is not None
    assert ended_at - killed_at - await stalls.between(killed_at, ended_at) <= LEASE + timedelta(seconds=1)
    await eventually(lambda: begun_in(world, job, attempt + 1))
    world.start_worker("--lease", "1s", "--concurrency", "4")


async def begun_in(world: World, job: Job, attempt: int) -> Event | None:
    return next((event for event in world.events("begin") if (event.id, event.attempt) == (job.id, attempt)), None)


async def check_recovery(found: Job, times: int, stalls: Stalls) -> None:
    assert (found.status, found.retry_count, len(found.attempts)) == (Status.COMPLETED, times, times + 1)
    for n, (lost, following) in enumerate(zip(found.attempts, found.attempts[1:], strict=False)):
        assert "WorkerLost" in (lost.error or "")
        assert lost.ended_at is not None
        assert following.started_at is not None
        due = lost.ended_at + RETRY_DELAY * 2**n
        assert following.started_at >= due
        assert following.started_at - due - await stalls.between(due, following.started_at) <= timedelta(milliseconds=50)


async def check_all_ended_once(world: World, app: Demora, jobs: list[Job]) -> None:
    for job in jobs:
        assert (await app.wait(job.id, "60s")).status is Status.COMPLETED
    ends = Counter(event.id for event in world.events("end"))
    hung = {event.id for event in world.events("begin")} - {job.id for job in jobs}
    assert {id: ends[id] for id in hung} == dict.fromkeys(hung, 1)
    assert all(ends[job.id] >= 1 for job in jobs)
    assert len(hung) == KILLS


async def test_a_stopped_worker_that_wakes_after_its_lease_changes_nothing(world: World, app: Demora) -> None:
    first = world.start_worker("--lease", "500ms")
    job = await app.enqueue("hang", {"times": 1}, retry_delay="10ms")
    await eventually(lambda: begun_in(world, job, 1))
    await stop_while_it_holds_no_lock(world, first.pid)
    world.start_worker("--lease", "500ms")
    found = await app.wait(job.id, "60s")
    os.kill(first.pid, signal.SIGCONT)
    await eventually(lambda: lost_said(world))
    assert (await app.get(job.id)) == found
    assert (found.status, found.token) == (Status.COMPLETED, 2)


async def stop_while_it_holds_no_lock(world: World, pid: int) -> None:
    """SIGSTOP. A process that is stopped in the middle of a write keeps the file locked, and nobody could take over."""
    os.kill(pid, signal.SIGSTOP)
    while not await asyncio.to_thread(can_be_written, world):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)


def can_be_written(world: World) -> bool:
    """Asked in another process: a second SQLite in this one would lose it its locks."""
    file = world.database_url.removeprefix("sqlite:///")
    ask = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.5, isolation_level=None).execute('BEGIN IMMEDIATE')"
    return subprocess.run([sys.executable, "-c", ask, file], check=False, stderr=subprocess.DEVNULL).returncode == 0


async def lost_said(world: World) -> bool:
    return "its lease was lost" in world.output.read_text()
