"""Timers that go off in time, on every loop, and leave nothing behind."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from demora.system import timers
from demora.system.timers import Timer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="timers are counted in /proc")


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        runner.run(_waited(0.001))  # the clock of a new loop may be behind
        yield runner


async def _waited(seconds: float) -> float:
    """For how long an alarm took to go off."""
    loop = asyncio.get_running_loop()
    gone_off: asyncio.Future[None] = loop.create_future()
    began = time.monotonic()
    Timer(loop, seconds, lambda: gone_off.set_result(None))
    await gone_off
    return time.monotonic() - began


def _timers() -> int:
    """How many timers of the kernel this process has."""
    return sum("timerfd" in os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink())


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0004, 0.0017, timers.NEAR, 0.0123])
def test_it_goes_off_once_its_time_has_come_and_never_before(runner: asyncio.Runner, seconds: float) -> None:
    for _ in range(20):
        assert runner.run(_waited(seconds)) >= seconds
    assert _timers() == 0


@pytest.mark.parametrize("near", [False, True])
def test_cancelled_it_is_silent_and_leaves_no_timer(
    runner: asyncio.Runner, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "NEAR", 3600.0 if near else 0.001)
    fired: list[None] = []

    async def cancel() -> None:
        loop = asyncio.get_running_loop()
        alarm, soon = Timer(loop, 60, lambda: fired.append(None)), Timer(loop, 0.005, lambda: fired.append(None))
        soon.cancel()  # before the loop has had a turn, however long the machine stands still
        await asyncio.sleep(0)
        assert _timers() == near
        alarm.cancel()
        alarm.cancel()
        await _waited(0.010)

    runner.run(cancel())
    assert (_timers(), fired) == (0, [])


def test_where_no_file_can_be_opened_it_goes_off_all_the_same(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(seconds: float) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(timers, "_timer", refuse)
    runner.run(_waited(0.005))


def test_many_at_once_all_go_off(runner: asyncio.Runner) -> None:
    order: list[int] = []

    async def fire() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def note(n: int) -> Callable[[], None]:
            return lambda: order.append(n)

        for n in reversed(range(20)):
            Timer(loop, 0.001 + n / 1000, note(n))
        Timer(loop, 0.030, lambda: done.set_result(None))
        await done

    runner.run(fire())
    assert sorted(order) == list(range(20))
