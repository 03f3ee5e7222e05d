"""A store in trouble is left alone for as long as was said, unless something rings."""

import asyncio

from demora.scheduler.housekeeping import wait_before_retry


class Bell:
    """Comes back early for no reason so often; then it rings."""

    def __init__(self, early: int) -> None:
        self.early, self.waits = early, list[float]()

    def wake(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self, timeout: float | None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if len(self.waits) > self.early:
            return True
        if len(self.waits) > 1:
            await asyncio.sleep(min(timeout, 0.01))
        return False


async def test_it_lasts_although_the_bell_comes_back_early() -> None:
    loop, bell = asyncio.get_running_loop(), Bell(early=1000)
    began = loop.time()
    await wait_before_retry(bell, 0.1)
    assert loop.time() - began >= 0.1
    assert len(bell.waits) > 1
    assert bell.waits == sorted(bell.waits, reverse=True)


async def test_a_ring_ends_it() -> None:
    bell = Bell(early=2)
    await asyncio.wait_for(wait_before_retry(bell, 3600), 5)
    assert len(bell.waits) == 3
