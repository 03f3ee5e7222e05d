"""A store in trouble is left alone for as long as was said, unless it notifies."""

import asyncio

from demora.scheduler.scheduler import wait_before_retry


class EarlyWaits:
    """Comes back early for no reason so often; then it is notified."""

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
    loop, subscription = asyncio.get_running_loop(), EarlyWaits(early=1000)
    began = loop.time()
    await wait_before_retry(subscription, 0.1)
    assert loop.time() - began >= 0.1
    assert len(subscription.waits) > 1
    assert subscription.waits == sorted(subscription.waits, reverse=True)


async def test_a_ring_ends_it() -> None:
    subscription = EarlyWaits(early=2)
    await asyncio.wait_for(wait_before_retry(subscription, 3600), 5)
    assert len(subscription.waits) == 3
