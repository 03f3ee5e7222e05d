"""The built-in handlers for trying demora out, and the setting that switches built-in handlers off."""

import asyncio
from collections.abc import Sequence
from typing import Any

from .registry import Defaults, Handler


async def echo(**payload: Any) -> dict[str, Any]:
    """Return the payload."""
    return payload


async def sleep(seconds: float = 1.0) -> dict[str, float]:
    """Sleep for this many seconds."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


async def fail(message: str = "this job always fails", **payload: Any) -> None:
    """Raise an error with this message."""
    raise RuntimeError(message)


HTTP_REQUEST = "http.request"
BUILT_IN = (
    Handler("demo.echo", echo, Defaults()),
    Handler("demo.sleep", sleep, Defaults()),
    Handler("demo.fail", fail, Defaults()),
)
DEMO_TYPES = tuple(handler.type for handler in BUILT_IN)
DEMO_OFF = "the demo handlers are off once an API key exists, unless DEMORA_BUILTIN_HANDLERS=all switches them on"
_SWITCHES = {"demo": DEMO_TYPES, HTTP_REQUEST: (HTTP_REQUEST,)}


def unwanted(names: Sequence[str]) -> list[str]:
    """Return the types that these values of the setting `builtin_handlers` switch off. Webhooks are always on."""
    wanted = () if "none" in names else tuple(_SWITCHES) if "all" in names else names
    return [type for name, types in _SWITCHES.items() if name not in wanted for type in types]
