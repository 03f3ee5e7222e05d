"""Handlers that every demora knows, to try it with, and which of the built-in ones are to be switched off."""

import asyncio
from collections.abc import Sequence
from typing import Any

from .registry import Defaults, Handler


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


HTTP_REQUEST = "http.request"
BUILT_IN = (
    Handler("demo.echo", echo, Defaults()),
    Handler("demo.sleep", sleep, Defaults()),
    Handler("demo.fail", fail, Defaults()),
)
_SWITCHES = {"demo": tuple(handler.type for handler in BUILT_IN), HTTP_REQUEST: (HTTP_REQUEST,)}


def unwanted(names: Sequence[str]) -> list[str]:
    """The types that these values of the setting `builtin_handlers` switch off. That of the webhooks is always on."""
    wanted = () if "none" in names else tuple(_SWITCHES) if "all" in names else names
    return [type for name, types in _SWITCHES.items() if name not in wanted for type in types]
