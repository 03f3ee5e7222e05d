"""Awaiting facts: the one place where tests look again and again, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
FIRST, LONGEST = 0.002, 0.01  # seconds between two looks: most facts come soon, and a process that starts needs the core


async def eventually(look: Callable[[], Awaitable[T]], fact: Callable[[T], object] = bool, within: float = 60) -> T:
    """What `look` answers once `fact` holds of it."""
    pause = FIRST
    async with asyncio.timeout(within):
        while not fact(seen := await look()):
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, LONGEST)
    return seen
