"""What paces let go, as the log tells it."""

import asyncio
from collections.abc import Iterable

import pytest

from demora.core.job import Priority
from demora.core.pace import Release
from demora.core.spans import from_ms
from demora.scheduler.housekeeping import ReleaseLog
from tests.sim.loop import SimLoop


def releases(*queues: str) -> Iterable[Release]:
    return [Release(f"{queue}-{n}", queue, Priority.NORMAL, from_ms(0)) for n, queue in enumerate(queues)]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_after_a_rest_it_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say() -> None:
        ReleaseLog().add(releases("mail", "mail", "web"))

    SimLoop(1).run_until_complete(say())
    assert lines(caplog) == ["the pace of mail released 2 delayed jobs", "the pace of web released 1 delayed job"]


def test_a_fast_pace_gets_a_line_a_second_with_all_that_was_let_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say() -> None:
        tally = ReleaseLog()
        for _ in range(250):
            tally.add(releases("mail"))
            await asyncio.sleep(0.01)
        tally.close()

    SimLoop(1).run_until_complete(say())
    told = [int(line.split()[-3]) for line in lines(caplog)]
    assert len(told) == 4
    assert sum(told) == 250


def test_nothing_is_said_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def say() -> None:
        tally = ReleaseLog()
        tally.add([])
        tally.close()

    SimLoop(1).run_until_complete(say())
    assert lines(caplog) == []
