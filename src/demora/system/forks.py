"""Forks of a process that runs jobs: the child releases the sockets that it has inherited.

A fork copies the descriptors of the listening socket, of callers' connections, of connections to databases and of wake-up
sockets. While the child holds them, the port stays taken after the service has ended, callers never see their connections
close, and a database keeps the sessions of a dead worker. So the child replaces each of them by a descriptor of /dev/null.
That does not touch the parent's descriptor, and the number stays taken, so that an object that still uses it can close it
without harm. SQLite's descriptors stay as they are: the child inherits no lock of the file, and it neither uses nor closes
the connections.
"""

import asyncio
import contextlib
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from . import notices

CurrentJob = Callable[[], tuple[str, str] | None]  # the id and type of the job that the calling code runs for
_owners: "weakref.WeakKeyDictionary[Any, Callable[[Any], Iterable[int]]]" = weakref.WeakKeyDictionary()
_running = 0  # number of workers in this process
_warned = False
_current_job: CurrentJob | None = None
_forking: asyncio.AbstractEventLoop | None = None  # the loop of the thread that forks


def release_in_child(owner: Any, descriptors: Callable[[Any], Iterable[int]]) -> None:
    """Replace these descriptors of the owner in every forked child, for as long as the owner exists."""
    _owners[owner] = descriptors


def descriptors_of(transport: Any) -> list[int]:
    """Return the descriptor of a transport's socket, if it has one."""
    held = None if transport is None else transport.get_extra_info("socket")
    return [] if held is None else [held.fileno()]


@contextlib.contextmanager
def running_jobs(current_job: CurrentJob) -> Iterator[None]:
    """Log a warning if this process is forked during the block, once per process, with the job of the forking thread."""
    global _running, _current_job
    _running, _current_job = _running + 1, current_job
    try:
        yield
    finally:
        _running -= 1


def exit_in_child(pid: int) -> None:
    """Exit if this is a forked child of the worker's process `pid`: only the parent continues as a worker."""
    if os.getpid() != pid:
        os._exit(0)


def _before() -> None:
    global _forking
    _forking = asyncio._get_running_loop() if _running else None


def _in_parent() -> None:
    global _warned, _forking
    _forking = None
    if _running and not _warned:
        _warned = True
        notices.process_forked(None if _current_job is None else _current_job())


def _in_child() -> None:
    global _running, _forking
    _replace([descriptor for owner, descriptors in [*_owners.items()] for descriptor in _of(owner, descriptors)])
    _owners.clear()
    if _forking is not None:
        _leave(_forking)
    _running, _forking = 0, None


def _leave(loop: asyncio.AbstractEventLoop) -> None:
    """Let the forking coroutine run on in the child until it returns or awaits, and then exit.

    The child must run nothing else of the worker's loop: callbacks that are ready could answer callers a second time, and
    parent and child share the descriptor by which the loop hears of its sockets. No loop can drop its ready
    callbacks, so the exit comes with the return of the task's outermost coroutine; a profile function sees every return.
    """
    outermost = _outermost_coroutine(sys._getframe())
    if outermost is None:  # forked by a plain callback, such as one of `call_soon`
        loop.call_soon(os._exit, 0)
        return

    def exit_at_return(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame is outermost:
            os._exit(0)

    sys.setprofile(exit_at_return)


def _outermost_coroutine(frame: FrameType | None) -> FrameType | None:
    found = None
    while frame is not None:
        found = frame if frame.f_code.co_flags & inspect.CO_COROUTINE else found
        frame = frame.f_back
    return found


def _of(owner: Any, descriptors: Callable[[Any], Iterable[int]]) -> list[int]:
    try:
        return list(descriptors(owner))
    except Exception:  # the fork came while the owner was changing
        return []


def _replace(descriptors: Iterable[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
