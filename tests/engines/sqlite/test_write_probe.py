"""The probe that says whether writes are taken: it waits for one write, and many callers share it."""

import asyncio

import pytest

from demora.engines.sqlite.diagnostics import WriteProbe
from demora.errors import StoreBusy, StoreError


class Writes:
    """Writes that end when a test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []

    def write(self) -> "asyncio.Future[None]":
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


async def test_a_write_that_does_not_end_in_time_is_busy_and_is_not_asked_again() -> None:
    writes = Writes()
    probe = WriteProbe(writes.write, within=0.0)
    for _ in range(2):
        with pytest.raises(StoreBusy, match="not ended within"):
            await probe.ask()
    assert len(writes.asked) == 1
    writes.asked[0].set_result(None)
    await probe.ask()


async def test_a_write_that_fails_is_raised_to_all_who_share_it() -> None:
    writes = Writes()
    probe = WriteProbe(writes.write)
    asking = [asyncio.ensure_future(probe.ask()) for _ in range(2)]
    await asyncio.sleep(0)
    writes.asked[0].set_exception(StoreError("no room"))
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["no room"] * 2
    assert len(writes.asked) == 1


@pytest.mark.parametrize(("fresh", "writes_asked"), [(60.0, 1), (-1.0, 2)])
async def test_an_answer_is_shared_while_it_is_fresh(fresh: float, writes_asked: int) -> None:
    writes = Writes()
    probe = WriteProbe(writes.write, fresh=fresh)
    for _ in range(2):
        asking = asyncio.ensure_future(probe.ask())
        await asyncio.sleep(0)
        if not writes.asked[-1].done():
            writes.asked[-1].set_result(None)
        await asking
    assert len(writes.asked) == writes_asked
