"""One process as its worker sees it: what it says, in whatever order, and how it ends."""

import asyncio
import logging
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from demora.core.verdict import Succeeded
from demora.errors import ProcessDied
from demora.handlers.context import Context
from demora.store.jobs import Lease, Report
from demora.system.child_process import Child, spawn
from demora.system.seams import Seams
from demora.worker.leases import run_on_thread
from demora.worker.processes.location import ImportPath
from demora.worker.processes.messages import Began, Logged, RunEnded, Said, Work, frame
from demora.worker.processes.pool import Process, Processes
from demora.worker.run import Resources, Run
from tests.builders import claimed_job, seconds
from tests.facts import eventually
from tests.worker import process_jobs
from tests.worker.test_processes import is_gone

NOTHING = seconds(0)
LONG = 120.0  # seconds


@asynccontextmanager
async def started(command: str = "sleep 600") -> AsyncIterator[tuple[Process, socket.socket]]:
    """A process, and the end of the pipe that is its own."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    process = Process(Child(sh(command), reader, writer))
    try:
        with theirs:
            yield process, theirs
    finally:
        process.kill()
        await process.gone


def sh(command: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sh", "-c", command], start_new_session=True)


def work() -> tuple[Context, Work]:
    job = claimed_job()
    return Context(job, "ann"), Work(job, "ann", NOTHING, ImportPath("shop"), None)


@pytest.mark.parametrize(
    ("command", "fate"),
    [
        ("exit 0", "ended with exit code 0"),
        ("exit 7", "ended with exit code 7"),
        ("kill -9 $$", "ended with signal 9 (SIGKILL)"),
        ("kill -35 $$", "ended with signal 35"),
    ],
)
async def test_its_fate_says_how_it_ended_and_no_job_is_given_to_the_dead(command: str, fate: str) -> None:
    async with started(command) as (process, pipe):
        pipe.close()
        async with asyncio.timeout(LONG):
            await process.gone
            assert not await process.begin(*work(), LONG)
        assert (process.fate, process.answer) == (fate, None)


async def test_what_closes_its_pipe_and_goes_on_is_killed() -> None:
    async with started() as (process, pipe):
        pipe.close()
        async with asyncio.timeout(LONG):
            await process.gone
        assert process.fate == "closed its pipe"


@pytest.mark.parametrize("words", [b"\xff\xff\xff\xff", b"\0\0\0\4nope"], ids=["too long", "no message"])
async def test_what_sends_no_message_is_killed(words: bytes) -> None:
    async with started() as (process, pipe):
        pipe.sendall(words)
        async with asyncio.timeout(LONG):
            await process.gone
        assert process.fate == "sent an invalid message: a handler wrote into its pipe"


async def test_only_what_is_said_of_the_current_run_is_heard() -> None:
    ctx, given = work()
    earlier = Report(Lease(ctx.id, 7), NOTHING, 0.25, "of an earlier run")
    now = Report(ctx.job.lease, NOTHING, 0.5, "of this run")
    async with started() as (process, pipe):
        pipe.sendall(frame(Said(earlier)))
        beginning = asyncio.ensure_future(process.begin(ctx, given, LONG))
        await asyncio.sleep(0)
        for stale in (Began(earlier.lease), Said(earlier), RunEnded(earlier, Succeeded(b"7"))):
            pipe.sendall(frame(stale))
        for said in (Said(now), RunEnded(Report(now.lease, NOTHING), Succeeded(b"1"))):
            pipe.sendall(frame(said))
        assert await beginning, "what has ended has begun"
        await process.answered(LONG)
        assert process.answer is not None
        assert process.answer.outcome == Succeeded(b"1")
        heard = ctx.report()
        assert (heard.progress, heard.message) == (0.5, "of this run")


async def test_its_records_are_logged_here_if_their_level_counts_here(caplog: pytest.LogCaptureFixture) -> None:
    def record(level: int, text: str) -> Logged:
        return Logged("shop", level, logging.getLevelName(level), text, 1.0, "shop.py", 1, None, "a job")

    caplog.set_level(logging.WARNING, "shop")
    ctx, given = work()
    async with started() as (process, pipe):
        beginning = asyncio.ensure_future(process.begin(ctx, given, LONG))
        for said in (record(logging.INFO, "quiet"), record(logging.ERROR, "loud"), Began(ctx.job.lease)):
            pipe.sendall(frame(said))
        assert await beginning
    assert [(one.name, one.levelname, one.message) for one in caplog.records if one.name == "shop"] == [
        ("shop", "ERROR", "loud")
    ]


async def test_a_process_that_cannot_be_started_fails_the_attempt() -> None:
    def start(fd: int) -> "subprocess.Popen[bytes]":
        raise OSError("no more processes")

    run, slots = a_run(start)
    with pytest.raises(OSError, match="no more processes"):
        await slots.call(run, PID)


async def test_a_run_that_is_cancelled_while_its_process_starts_kills_it() -> None:
    pids: list[int] = []

    def start(fd: int) -> "subprocess.Popen[bytes]":
        spawned = sh("sleep 600")
        pids.append(spawned.pid)
        return spawned

    run, slots = a_run(start)
    calling = asyncio.ensure_future(slots.call(run, PID))
    await eventually(lambda: asyncio.sleep(0, slots._alive))
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await eventually(lambda: is_gone(pids[0]))
    await eventually(lambda: asyncio.sleep(0, slots._alive), lambda alive: not alive)


async def test_a_start_that_is_cancelled_leaves_nothing_open() -> None:
    before = os.listdir("/dev/fd")
    starting = asyncio.ensure_future(spawn(no_process))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert os.listdir("/dev/fd") == before


async def test_no_process_is_started_for_a_worker_that_has_stopped() -> None:
    run, slots = a_run(no_process)
    await slots.close()
    with pytest.raises(ProcessDied, match="was not started: its worker has stopped"):
        await slots.call(run, PID)


def no_process(fd: int) -> "subprocess.Popen[bytes]":
    raise AssertionError("nothing should be started")


PID = process_jobs.pid.handler


def a_run(start: Callable[[int], "subprocess.Popen[bytes]"]) -> tuple[Run, Processes]:
    slots = Processes(process_jobs.app, Seams(spawn=lambda: spawn(start)), began=lambda run: None)
    run = Run(work()[0], PID, Resources((), ThreadPoolExecutor(1), slots))
    return run, slots


async def test_a_thread_whose_future_was_cancelled_goes_on_to_its_end() -> None:
    begun, let_go, over = threading.Event(), threading.Event(), threading.Event()

    async def main() -> None:
        begun.set()
        await asyncio.to_thread(let_go.wait, LONG)
        over.set()

    running = run_on_thread(main(), "a thread of its own")
    await asyncio.to_thread(begun.wait, LONG)
    running.cancel()
    let_go.set()
    assert await asyncio.to_thread(over.wait, LONG)
    await eventually(lambda: asyncio.sleep(0, "a thread of its own" not in [one.name for one in threading.enumerate()]))
    assert running.cancelled()
