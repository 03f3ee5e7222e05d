"""Wake-ups on SQLite: a waiter sleeps until a process notifies its topic, and polls the clock and the file as a safety net.

A notification to another process is a datagram to a socket in a folder beside the database file. Each store has one socket
for each topic that it waits for.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from pathlib import Path

from ...errors import StoreError
from ...store.jobs import Topic
from ...system import forks
from ...system.clock import Clock
from ...system.timers import TimedWait

CLOCK_LOOK = 0.95  # seconds between looks for a stepped clock
CLOCK_STEP = 50  # milliseconds that count as a step
FILE_LOOKS = 3  # looks at the clock for one look at the file, while notifications can reach this process
CLOSE_ENOUGH = 0.0001  # seconds; a timer may fire a little early
DEAF_LOOK = 0.02  # seconds between looks at the file while no notification can reach this process
_GRAIN = 100_000_000  # nanoseconds, more than the steps in which time stamps of folders move
_FRESH = 0.005  # seconds for which a listing of the folder counts
_LONGEST_ADDRESS = 100  # bytes; the kernel's limit is 108 or 104


class Waiter:
    """A subscription on one topic."""

    def __init__(
        self,
        topic: Topic,
        clock: Clock,
        data_version: Callable[[], Awaitable[int]] | None,
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        self.topic = topic
        self.reachable = True
        self._clock, self._data_version, self._is_there = clock, data_version, is_there
        self._seen: int | None = None
        self._sleep = TimedWait()

    def wake(self) -> None:
        self._sleep.notify()

    def clear(self) -> None:
        self._sleep.clear()

    async def wait(self, timeout: float | None) -> bool:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        drift = self._drift()
        for look in count(1):
            if await self._rest(None if deadline is None else deadline - loop.time()):
                return True
            if deadline is not None and deadline - loop.time() < CLOSE_ENOUGH:
                return False
            if abs(self._drift() - drift) > CLOCK_STEP or await self._file_changed(look):
                return True
            if not self._is_there():
                return True  # the caller's next read or write says so
        raise AssertionError("the loop has no end")

    async def _rest(self, left: float | None) -> bool:
        """Sleep until woken, or until the next look is due; True if woken."""
        pause = CLOCK_LOOK if self.reachable else DEAF_LOOK
        return await self._sleep.wait(pause if left is None else min(pause, max(left, 0)))

    def _drift(self) -> float:
        """The wall clock minus the loop's. It moves when the wall clock is stepped, and when the machine was suspended."""
        return self._clock.wall_us() / 1000 - asyncio.get_running_loop().time() * 1000

    async def _file_changed(self, look: int) -> bool:
        """Whether another process wrote to the file since the last look; True at the first look."""
        if self._data_version is None or (self.reachable and look % FILE_LOOKS):
            return False
        try:
            seen, self._seen = self._seen, await self._data_version()
        except StoreError:
            return True  # the caller's next read raises the same error
        return seen != self._seen


def sockets_folder(database: Path) -> Path:
    """The folder beside a database file that holds the sockets of its stores."""
    return database.with_name(database.name + "-sockets")


class Notifier:
    """Notifies the other stores on a database file, and listens for their notifications."""

    def __init__(self, database: Path) -> None:
        self._folder = sockets_folder(database)
        self._own: dict[Topic, tuple[str, socket.socket]] = {}
        self._names: set[str] = set()
        self._listed: list[str] = []
        self._listed_at = 0
        self._looked_at = 0.0
        self._sender: socket.socket | None = None
        self._handle: int | None = None

    def listen(self, topic: Topic, callback: Callable[[], None]) -> bool:
        """Call `callback` on each notification from another store, until closed. False if no socket can be made here."""
        if topic in self._own:
            return True
        name = f"{topic.value}.{os.getpid()}.{secrets.token_hex(4)}"  # pids are reused, also in containers
        own: socket.socket | None = None
        try:
            own = _socket()  # fails if the process has too many open files
            self._folder.mkdir(mode=0o700, exist_ok=True)
            own.bind(self._address(name))
        except OSError:
            if own is not None:
                own.close()
            return False
        self._own[topic] = name, own
        self._names.add(name)
        asyncio.get_running_loop().add_reader(own, _drain, own, callback)
        time.sleep(2 * _FRESH)  # a writer that listed the folder before the socket was there has committed by now
        return True

    def notify(self, topics: Iterable[Topic]) -> None:
        """Wake the waiters of other stores on this file; never blocks and never fails."""
        listening = self._listening()
        if listening:
            prefixes = tuple(f"{topic.value}." for topic in topics)
            for name in listening:
                if name.startswith(prefixes) and name not in self._names:
                    self._send(name)

    def _listening(self) -> list[str]:
        """The sockets in the folder. Lists it again if its time stamp has changed, or is too recent to show every change."""
        now = time.monotonic()
        if now - self._looked_at < _FRESH:
            return self._listed
        self._looked_at = now
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._listed_at or time.time_ns() - changed < _GRAIN:
                self._listed, self._listed_at = os.listdir(self._folder), changed
        except OSError:
            self._listed, self._listed_at = [], 0
        return self._listed

    def close(self) -> None:
        for name, own in self._own.values():
            asyncio.get_running_loop().remove_reader(own)
            own.close()
            self._remove(name)
        self._own.clear()
        self._names.clear()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _send(self, name: str) -> None:
        try:
            if self._sender is None:
                self._sender = _socket()
            self._sender.sendto(b"!", self._address(name))
        except ConnectionRefusedError:
            self._remove(name)  # its process died
        except OSError:
            pass  # a full socket already holds a notification; without a free descriptor, the others look at the file

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def _address(self, name: str) -> str:
        """The socket's path, made short through the folder's handle where the kernel would refuse it."""
        path = str(self._folder / name)
        if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
            return path
        if self._handle is None:
            self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._handle}/{name}"


def _socket() -> socket.socket:
    """Return a datagram socket that never blocks. A forked child closes it, so that other processes do not keep sending to
    it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    forks.release_in_child(made, lambda held: [held.fileno()])
    return made


def _drain(own: socket.socket, callback: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while own.recv(64):
            pass
    callback()
