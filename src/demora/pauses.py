"""The pause between two tries of a store in trouble."""

import asyncio

from .store import Subscription


async def pause(bell: Subscription, seconds: float) -> None:
    """Let it be for so long, unless something rings: it may be back."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0 and not await bell.wait(left):
        pass
