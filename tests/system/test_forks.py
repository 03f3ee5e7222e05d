"""A fork on the thread of an event loop: the child ends with the step that forked, and runs nothing else of the loop."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from demora.system import forks

Fork = Callable[[], Awaitable[int]]


async def returning() -> int:
    return os.fork()


async def awaiting() -> int:
    child = os.fork()
    await asyncio.sleep(0)
    return child


async def raising() -> int:
    child = os.fork()
    if child == 0:
        raise RuntimeError("in the child")
    return child


async def deeper() -> int:
    return await returning()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("fork", [returning, awaiting, raising, deeper])
def test_a_forked_child_runs_no_callback_that_was_ready(
    new_loop: Callable[[], asyncio.AbstractEventLoop], fork: Fork
) -> None:
    ready, written = os.pipe()

    async def main() -> int:
        with forks.running_jobs(lambda: None):
            forking = asyncio.ensure_future(fork())
            for _ in range(3):
                asyncio.get_running_loop().call_soon(lambda: os.write(written, str(os.getpid()).encode() + b" "))
            return await forking

    loop = new_loop()
    try:
        child = loop.run_until_complete(main())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        loop.close()
        os.close(written)
    with os.fdopen(ready) as pipe:
        assert set(pipe.read().split()) == {str(os.getpid())}
