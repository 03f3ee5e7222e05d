"""How a process that serves comes to its end: with the code it earned, and nothing that hangs may keep it."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn

_LAST_CALL = 1.0  # seconds that threads have to end once all else has


def run(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Run on uvloop and exit with the code it gives, at once or after a last call if a thread still hangs."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(main)
        _exit_soon(code)
    sys.exit(code)


def _exit_soon(code: int) -> None:
    timer = threading.Timer(_LAST_CALL, os._exit, [code])
    timer.daemon = True
    timer.start()
