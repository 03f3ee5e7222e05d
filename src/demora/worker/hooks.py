"""What an application asked to be called when a worker starts and stops."""

import inspect
from collections.abc import Awaitable, Callable, Sequence

from .. import notices


async def run_hooks(which: str, hooks: Sequence[Callable[[], Awaitable[None] | None]]) -> None:
    """Call the hooks in order. One that fails keeps a worker from starting, but not from stopping."""
    for hook in hooks:
        try:
            called = hook()
            if inspect.isawaitable(called):
                await called
        except Exception as problem:
            notices.hook_failed(which, problem)
            if which == "startup":
                raise
