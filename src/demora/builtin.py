"""Handlers that every demora knows, to try it with."""

import asyncio
from typing import Any

from .handlers import Defaults, Handler


async def echo(**payload: Any) -> dict[str, Any]:
    """Return the payload."""
    return payload


async def sleep(seconds: float = 1.0) -> dict[str, float]:
    """Do nothing for so many seconds."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


async def fail(message: str = "this job always fails", **payload: Any) -> None:
    """Raise."""
    raise RuntimeError(message)


BUILT_IN = (
    Handler("demo.echo", echo, Defaults()),
    Handler("demo.sleep", sleep, Defaults()),
    Handler("demo.fail", fail, Defaults()),
)
