"""Taking turns at the lock of a database file, so that those who wait for it sleep until they are next.

SQLite lets a process only try again and again, and thirty that do so take the processor from the one that works. So whoever
finds the lock taken queues up here first. It is a courtesy and protects nothing: who cannot queue up tries again as before.
"""

import fcntl
import os
import weakref
from pathlib import Path


class Turns:
    """The queue before one file, on the folder of its bells; a process that dies leaves it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._handle = folder, -1
        _made.add(self)

    def take(self) -> bool:
        """Wait until it is our turn; False if there is no queue to be had here."""
        try:
            if self._folder is None:
                return False
            if self._handle < 0:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        except OSError:
            return False
        return True

    def give_back(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


_made: weakref.WeakSet[Turns] = weakref.WeakSet()


def _leave() -> None:
    """A forked child would stand in the queue in its parent's place."""
    for turns in [*_made]:
        turns.close()


os.register_at_fork(after_in_child=_leave)
