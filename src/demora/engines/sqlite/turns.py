"""Taking turns at the lock of a database file, so that those who wait for it sleep until they are next.

SQLite lets a process only try again and again, and thirty that do so take the processor from the one that works. So whoever
finds the lock taken queues up here first. It is a courtesy and protects nothing: who cannot queue up tries again as before.

`flock` has no deadline, and a process that is stopped keeps its turn. So a watchdog passes by a turn that does not end:
another thread goes on in the place of the one that waits, without a turn, and nobody in this process queues up again until
the waiting thread has had its turn at last.
"""

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

LIMIT = 1.0  # seconds to wait for a turn before going on without
_LOOK = 0.05  # seconds between looks of the watchdog while a thread waits


class Overtaken(Exception):
    """Another thread has gone on in the place of this one, which waited for its turn for too long and must do nothing."""


class Turns:
    """The queue before one file, on the folder of its bells; a process that dies leaves it.

    `pass_by` is called on the watchdog's thread when a wait takes longer than the limit; without it there is no limit.
    """

    def __init__(self, folder: Path | None, *, limit: float = LIMIT) -> None:
        self._folder, self._handle, self._limit = folder, -1, limit
        self._mutex = threading.Lock()
        self._since: float | None = None  # when the wait of a thread began that is still in the queue
        self._passed = False  # another thread has gone on in its place
        self._closed = False
        self.pass_by: Callable[[], None] | None = None
        _made.add(self)

    def take(self) -> bool:
        """Wait until it is our turn; False if there is no queue to be had here, or it does not move. `Overtaken` if the turn
        came when another thread had gone on without."""
        if self._folder is None or self._passed:
            return False
        try:
            if self._handle < 0:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            return self._at_once() or self._wait()
        except OSError:
            return False

    def give_back(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._passed:
                return  # the thread in the queue closes its handle when it comes out
        self._close_handle()

    def look(self, now: float) -> bool:
        """Pass by the turn that a thread of ours has waited for too long; answers whether one still waits in time."""
        with self._mutex:
            if self._since is None or self._passed or self.pass_by is None:
                return False
            if now - self._since < self._limit:
                return True
            self._passed = True
        self.pass_by()
        return False

    def leave(self) -> None:
        """In a forked child: it would stand in the queue in its parent's place, and no thread of it waits there."""
        self._mutex, self._since, self._passed = threading.Lock(), None, False
        self._close_handle()

    def _at_once(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self) -> bool:
        self._since = time.monotonic()
        if self.pass_by is not None:
            _watchdog.wake()
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        finally:
            self._come_out()
        return True

    def _come_out(self) -> None:
        with self._mutex:
            passed, self._passed, self._since = self._passed, False, None
            if passed and not self._closed:
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            elif passed:
                self._close_handle()
        if passed:
            raise Overtaken

    def _close_handle(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class _Watchdog:
    """One thread for all queues of this process, started with the first wait; it sleeps while no thread waits."""

    def __init__(self) -> None:
        self._needed = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        if self._needed.is_set():
            return
        self._needed.set()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="demora-sqlite-turns", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._needed.wait()
            time.sleep(_LOOK)
            if not self._look():
                self._needed.clear()
                if self._look():  # one that began to wait meanwhile saw no need to wake us
                    self._needed.set()

    def _look(self) -> bool:
        now = time.monotonic()
        waiting = [turns.look(now) for turns in [*_made]]
        return any(waiting)


_made: weakref.WeakSet[Turns] = weakref.WeakSet()
_watchdog = _Watchdog()


def _leave() -> None:
    """A forked child has no watchdog, and stands in no queue."""
    global _watchdog
    _watchdog = _Watchdog()
    for turns in [*_made]:
        turns.leave()


os.register_at_fork(after_in_child=_leave)
