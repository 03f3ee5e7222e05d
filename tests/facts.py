"""Awaiting facts: the one place where tests look again and again, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], fact: Callable[[T], object] = bool, within: float = 60) -> T:
    """What `look` answers once `fact` holds of it."""
    async with asyncio.timeout(within):
        while not fact(seen := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return seen
