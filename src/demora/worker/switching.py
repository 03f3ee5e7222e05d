"""Switches off built-in handlers while a process runs, such as the demo handlers once an API key exists."""

import asyncio

from ..errors import StoreError
from ..system import notices
from .application import Application

EVERY = 10.0  # seconds until a process looks again which handlers are to be switched off
_DOING = "switching off built-in handlers"


async def keep_switching(app: Application) -> None:
    """Switch off what the settings do not allow, again and again, until cancelled."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            await app.switch_builtins()
            notices.store_well(_DOING)
        except StoreError:
            pass  # the heartbeat or the scheduler reports a store in trouble
        except Exception as problem:  # a defect must not end this task: the handlers would stay switched on
            notices.store_trouble(_DOING, problem, EVERY)
