"""What becomes of a process that runs jobs when a handler forks it: the child keeps nothing of it in use.

A fork copies the descriptors of the listening socket, of callers' connections, of connections to databases and of wake-up
sockets. While the child holds them, the port stays taken after the service has ended, callers never see their connections
close, and a database keeps the sessions of a dead worker. So in the child each of them becomes a descriptor of /dev/null:
the parent's is not touched, and its number stays taken, so that objects that still name it can do no harm by closing it.
SQLite's own descriptors stay as they are: the child inherits no lock of the file, and its connections are neither used nor
closed.
"""

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import notices

CurrentJob = Callable[[], tuple[str, str] | None]  # the id and type of the job that the calling code runs for
_owners: "weakref.WeakKeyDictionary[Any, Callable[[Any], Iterable[int]]]" = weakref.WeakKeyDictionary()
_running = 0  # workers of this process
_warned = False
_current_job: CurrentJob | None = None
_forking: asyncio.AbstractEventLoop | None = None  # the loop whose thread forks


def let_go_in_child(owner: Any, descriptors: Callable[[Any], Iterable[int]]) -> None:
    """In the child of a fork, replace the descriptors that this gives of the owner then; forgotten with the owner."""
    _owners[owner] = descriptors


def descriptors_of(transport: Any) -> list[int]:
    """The descriptor of a transport's socket, if it has one."""
    held = None if transport is None else transport.get_extra_info("socket")
    return [] if held is None else [held.fileno()]


@contextlib.contextmanager
def running_jobs(current_job: CurrentJob) -> Iterator[None]:
    """Warn of a fork of this process while the block lasts, once, and name the current job of the thread that forks."""
    global _running, _current_job
    _running, _current_job = _running + 1, current_job
    try:
        yield
    finally:
        _running -= 1


def exit_in_child(pid: int) -> None:
    """End a forked child in which a handler returns: the worker whose copy it is goes on in process `pid` alone."""
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
    if _forking is not None:  # forked by an async handler: the child must not go on with the worker's loop
        _forking.call_soon(os._exit, 0)
    _running, _forking = 0, None


def _of(owner: Any, descriptors: Callable[[Any], Iterable[int]]) -> list[int]:
    try:
        return list(descriptors(owner))
    except Exception:  # the fork came while it was being changed
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
