"""The lock of a database file: taking turns at it, naming its holder, and what follows when it is held for long.

SQLite waits for its lock by trying again and again, and thirty processes that do so take the processor from the one that
works. So a process that finds the lock taken first waits for its turn here, with `flock` on the folder of sockets. The turn
protects nothing: a process that cannot wait for its turn goes on trying as SQLite does.

`flock` has no deadline, and a stopped process keeps its turn. So a watchdog ends a wait that takes too long: another thread
takes over without a turn. No thread of this process then waits for a turn until the first thread has got its own.
"""

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT = 1.0  # seconds to wait for a turn before going on without one
_LOOK = 0.05  # seconds between looks of the watchdog while a thread waits


class Overtaken(Exception):
    """This thread waited too long for its turn. Another thread has taken over, so this one must do nothing more."""


class LockTurns:
    """The turns at one file, by `flock` on a folder; a process that dies gives its turn back.

    The watchdog calls `pass_by` on its thread when a wait takes longer than the limit. Without `pass_by` there is no limit.
    """

    def __init__(self, folder: Path | None, *, limit: float = LIMIT) -> None:
        self._folder, self._handle, self._limit = folder, -1, limit
        self._mutex = threading.Lock()
        self._since: float | None = None  # when the wait of a thread began that still waits
        self._passed = False  # another thread has taken over from it
        self._closed = False
        self.pass_by: Callable[[], None] | None = None
        _made.add(self)

    def take(self) -> bool:
        """Wait for our turn; False if turns do not work here, or an earlier wait has not ended. Raises `Overtaken` if the
        turn came after another thread had taken over."""
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
                return  # the thread that waits closes its handle later
        self._close_handle()

    def look(self, now: float) -> bool:
        """Let another thread take over from one that has waited too long; True if one still waits within the limit."""
        with self._mutex:
            if self._since is None or self._passed or self.pass_by is None:
                return False
            if now - self._since < self._limit:
                return True
            self._passed = True
        self.pass_by()
        return False

    def leave(self) -> None:
        """In a forked child: close the handle, which would keep the parent's turn, and forget the parent's threads."""
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
    """One thread that watches all waits of this process. The first wait starts it; it sleeps while no thread waits."""

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
                if self._look():  # a wait that began meanwhile did not wake us
                    self._needed.set()

    def _look(self) -> bool:
        now = time.monotonic()
        waiting = [turns.look(now) for turns in [*_made]]
        return any(waiting)


_made: weakref.WeakSet[LockTurns] = weakref.WeakSet()
_watchdog = _Watchdog()


def _leave() -> None:
    """A forked child has no watchdog and waits for no turn."""
    global _watchdog
    _watchdog = _Watchdog()
    for turns in [*_made]:
        turns.leave()


os.register_at_fork(after_in_child=_leave)


# The holder of the lock, according to the kernel


_LOCKS = Path("/proc/locks")
_WRITER = range(120, 123)  # bytes of the -shm file that a process locks to write, checkpoint or recover (SQLite's wal.c)
_FILE = range(0x40000000, 0x40000000 + 512)  # bytes of the database file that a process locks for exclusive use


def describe_holder(database: str) -> str | None:
    """The processes that hold the lock of a database file: `process 4711 (demora, stopped)`. None if that is unknown, as on
    systems other than Linux."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    found = [*_holding(lines, database + "-shm", _WRITER), *_holding(lines, database, _FILE)]
    return " and ".join(_describe(pid) for pid in sorted(set(found))) or None


def _holding(lines: list[str], file: str, wanted: range) -> Iterator[int]:
    """The processes with an exclusive lock on one of these bytes. The kernel names a file by device and inode; where `stat`
    shows another device, as on some file systems, the inode alone decides."""
    try:
        seen = os.stat(file)
    except OSError:
        return
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    matches = [line for line in map(str.split, lines) if _is_on(line, str(seen.st_ino), wanted)]
    exact = [line for line in matches if line[5].rpartition(":")[0] == device]
    for line in exact or matches:
        yield int(line[4])


def _is_on(line: list[str], inode: str, wanted: range) -> bool:
    """Whether a line such as `7: POSIX ADVISORY WRITE 4711 fe:00:131 120 120` is a lock on these bytes. The line of a
    process that only waits for a lock has an arrow in second place."""
    if len(line) != 8 or line[1] == "->" or line[3] != "WRITE" or line[5].rpartition(":")[2] != inode:
        return False
    first, last = int(line[6]), wanted.stop if line[7] == "EOF" else int(line[7])
    return first < wanted.stop and last >= wanted.start


def _describe(pid: int) -> str:
    if pid <= 0:
        return "a process of another container"
    if pid == os.getpid():
        return f"this process itself ({pid})"
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {pid}"
    return f"process {pid} ({name}{', stopped' if state in 'tT' else ''})"


# Leases after a time in which no process could write


SPARING = 10_000  # milliseconds between renewals of a lease of the usual length
LEAST_SPARING = 3_000  # milliseconds: after a stall many writers want the lock, and a renewal has to get it too


class Stall:
    """The periods in which this process could not write, in milliseconds of the clock of leases.

    Workers could not renew their leases then. So a lease is spared until each stall that began before it lapsed has been
    over for as long as a renewal takes. A later stall spares only leases that lapse after it began, so a lease cannot be
    spared for ever. All connections of a process to one file share these periods.

    A process that did not have to wait knows of no stall. So a process that waits long stamps a file with two times, which
    needs no lock: its access time says when the stall began, its modification time when it was last noted. Every process
    looks at them before it judges a lease as lapsed. Even a process that has just started takes over leases that had lapsed
    before the stall. Otherwise, on a busy machine where workers keep dying early, each new one would spare them again.
    """

    __slots__ = ("_file", "_heeded", "_mutex", "_spared", "_waited_since", "renewed_every")

    def __init__(self, file: Path | None = None) -> None:
        self.renewed_every = SPARING
        self._file, self._mutex = file, threading.Lock()
        self._waited_since: int | None = None  # when the earliest long wait began, until a write succeeds
        self._spared: dict[int, int] = {}  # when a stall began, and until when leases that lapsed since then are spared
        self._heeded = 0  # when this process last heeded the stamp of another

    @property
    def ended(self) -> bool:
        """Whether this process can write, as far as it knows."""
        return self._waited_since is None

    def goes_on(self, since: int, now: int) -> None:
        """Note that a connection has waited since `since`, and still waits or has given up. Other processes see it too."""
        with self._mutex:
            self._waited_since = began = self._earliest(since)
        self._tell_others(began, now)

    def is_over(self, since: int, now: int) -> None:
        """Note that writes are possible again, after a long wait that began at `since` or one that was given up."""
        with self._mutex:
            self._spare(self._earliest(since), now + self.renewed_every)
            self._waited_since = None

    def heeds_others(self, now: int) -> bool:
        """Whether another process could not write until just now. Then leases are spared as after a stall of this process.

        A lease that had lapsed when this process last heeded others has had its time, so it is not spared again."""
        told = self._told()
        if told is None or not told.at <= now < told.at + self.renewed_every:
            return False
        with self._mutex:
            self._spare(max(self._heeded, told.began), told.at + self.renewed_every)
            self._heeded = now
        return True

    def spared_until(self, now: int) -> int | None:
        """Until when lapsed leases are spared; None if none is."""
        return max((until for until in self._spared.values() if now < until), default=None)

    def lease_clock(self, now: int) -> int:
        """The time that decides whether leases have lapsed: after a stall, the time at which it began."""
        if self._waited_since is None and not self._spared:
            return now
        with self._mutex:
            self._spared = {began: until for began, until in self._spared.items() if now < until}
            return min([self._earliest(now), *self._spared])

    def _earliest(self, since: int) -> int:
        return since if self._waited_since is None else min(self._waited_since, since)

    def _spare(self, began: int, until: int) -> None:
        self._spared = {**self._spared, began: max(until, self._spared.get(began, 0))}

    def _tell_others(self, began: int, now: int) -> None:
        """Stamp the file. Waits of several processes are one stall if they overlap."""
        if self._file is None:
            return
        before = self._told()
        if before is not None and began <= before.at <= now:
            began = min(began, before.began)
        with contextlib.suppress(OSError):
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600))
            os.utime(self._file, ns=(began * 1_000_000, now * 1_000_000))

    def _told(self) -> "_Told | None":
        """The stamp of the file. One that does not say when the stall began, as after a reader changed the access time,
        spares every lease."""
        try:
            seen = None if self._file is None else os.stat(self._file)
        except OSError:
            return None
        if seen is None:
            return None
        began, at = seen.st_atime_ns // 1_000_000, seen.st_mtime_ns // 1_000_000
        return _Told(began if began < at else 0, at)


class _Told(NamedTuple):
    """A stall that a process noted: when it began, and when it was last noted."""

    began: int
    at: int
