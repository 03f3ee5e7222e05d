"""`demora worker --processes N`: several workers that live and die as one command."""

import asyncio
import os
import signal
import subprocess

import pytest

from demora import Demora, Status
from tests.end_to_end.processes import World
from tests.end_to_end.test_process_handlers import is_gone, said
from tests.facts import eventually

pytestmark = pytest.mark.slow


async def started(world: World, app: Demora, *options: str) -> tuple["subprocess.Popen[bytes]", set[int]]:
    """A supervisor of two, and the processes of its workers."""
    supervisor = world.start_worker("--processes", "2", *options)
    client = await app.open()
    found = await eventually(client.workers, lambda found: len(found) == 2)
    return supervisor, {one.pid for one in found}


async def test_a_worker_that_dies_is_replaced_and_ctrl_c_stops_all(world: World, app: Demora) -> None:
    supervisor, first = await started(world, app, "--concurrency", "3", "--queues", "default", "--lease", "5s")
    client = await app.open()
    assert {(one.slots, one.queues) for one in await client.workers()} == {(3, ("default",))}
    os.kill(min(first), signal.SIGKILL)
    await eventually(client.workers, lambda found: {one.pid for one in found} - first)
    assert await said(world, f"worker process {min(first)} ended with signal 9, another starts in 0.5 s")
    pids = {one.pid for one in await client.workers()}
    job = await app.enqueue("hang")
    await eventually(lambda: asyncio.sleep(0, world.events("begin")))
    os.killpg(supervisor.pid, signal.SIGINT)
    await eventually(lambda: said(world, "is stopping: 1 running"))
    await app.cancel(job.id)  # ends within the grace: the workers heard one signal, not two
    assert await asyncio.to_thread(supervisor.wait, 60) == 0
    assert (await app.get(job.id)).status is Status.CANCELLED
    assert all([await is_gone(pid) for pid in pids])


async def test_workers_stop_and_hand_back_when_their_supervisor_is_killed(
    world: World, app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_GRACE", "0s")
    supervisor, pids = await started(world, app)
    job = await app.enqueue("hang")
    await eventually(lambda: asyncio.sleep(0, world.events("begin")))
    world.kill(supervisor.pid)
    for pid in pids:
        await eventually(lambda pid=pid: is_gone(pid))  # type: ignore[misc]
    found = await app.get(job.id)
    assert (found.status, found.attempt) == (Status.QUEUED, 0)


async def test_the_second_signal_ends_all_at_once(world: World, app: Demora) -> None:
    supervisor, _ = await started(world, app)
    await app.enqueue("hang")
    await eventually(lambda: asyncio.sleep(0, world.events("begin")))
    supervisor.send_signal(signal.SIGTERM)
    await eventually(lambda: said(world, "is stopping: 1 running"))
    assert await world.terminate(supervisor) == 128 + signal.SIGTERM
