"""Waiting without polling: a sleeper is woken by a bell, and only as a safety net looks at the clock and at the file."""

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
FILE_LOOKS = 3  # looks at the clock for one look at the file, when bells can reach us
CLOSE_ENOUGH = 0.0001  # seconds; a timer may fire a little early
DEAF_LOOK = 0.02  # seconds between looks at the file when no bell can reach us


class Waiter:
    """A subscription on one topic."""

    def __init__(self, topic: Topic, clock: Clock, data_version: Callable[[], Awaitable[int]] | None) -> None:
        self.topic = topic
        self.reachable = True
        self._clock, self._data_version = clock, data_version
        self._seen: int | None = None
        self._nap = TimedWait()

    def wake(self) -> None:
        self._nap.ring()

    def clear(self) -> None:
        self._nap.forget()

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
        raise AssertionError("it looks without end")

    async def _rest(self, left: float | None) -> bool:
        """Sleep until rung, but not for long; True if rung."""
        pause = CLOCK_LOOK if self.reachable else DEAF_LOOK
        return await self._nap.take(pause if left is None else min(pause, max(left, 0)))

    def _drift(self) -> float:
        """Moves when the wall clock is stepped, and when the machine slept, which the loop's clock does not count."""
        return self._clock.wall_us() / 1000 - asyncio.get_running_loop().time() * 1000

    async def _file_changed(self, look: int) -> bool:
        """Whether another process wrote to the file, whose bell we may have missed; at first sight it may have."""
        if self._data_version is None or (self.reachable and look % FILE_LOOKS):
            return False
        try:
            seen, self._seen = self._seen, await self._data_version()
        except StoreError:
            return True  # whoever looks next hears of the trouble
        return seen != self._seen


# Wake-ups across processes: datagram sockets in a folder beside the database file, one per sleeper and topic.


_GRAIN = 100_000_000  # nanoseconds; time stamps of folders move in steps of some milliseconds
_FRESH = 0.005  # seconds for which a look at the folder counts; who hangs a bell lets them pass before looking for work
_LONGEST_ADDRESS = 100  # bytes; the kernel's limit is 108 or 104


def bells_of(database: Path) -> Path:
    """The folder beside a database file."""
    return database.with_name(database.name + "-bells")


class Notifier:
    """The bells of one database file, as one store sees them: at most one of its own for each topic."""

    def __init__(self, database: Path) -> None:
        self._folder = bells_of(database)
        self._own: dict[Topic, tuple[str, socket.socket]] = {}
        self._names: set[str] = set()
        self._listed: list[str] = []
        self._listed_at = 0
        self._looked_at = 0.0
        self._sender: socket.socket | None = None
        self._handle: int | None = None
        forks.release_in_child(self, Notifier.descriptors)

    def descriptors(self) -> list[int]:
        """The sockets, which a forked child would keep alive for those who ring."""
        return [*(bell.fileno() for _, bell in self._own.values()), *([self._sender.fileno()] if self._sender else [])]

    def hang(self, topic: Topic, rung: Callable[[], None]) -> bool:
        """Call `rung` on each ring from another store, until closed. False if no bell can be hung here."""
        if topic in self._own:
            return True
        name = f"{topic.value}.{os.getpid()}.{secrets.token_hex(4)}"  # pids come again, also in containers
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            bell.setblocking(False)
            bell.bind(self._address(name))
        except OSError:
            bell.close()
            return False
        self._own[topic] = name, bell
        self._names.add(name)
        asyncio.get_running_loop().add_reader(bell, _drain, bell, rung)
        time.sleep(2 * _FRESH)  # now everything is on record that was written by somebody who does not know of this bell
        return True

    def ring(self, topics: Iterable[Topic]) -> None:
        """Wake the sleepers of other stores on this file; never blocks and never fails."""
        hanging = self._hanging()
        if hanging:
            prefixes = tuple(f"{topic.value}." for topic in topics)
            for name in hanging:
                if name.startswith(prefixes) and name not in self._names:
                    self._send(name)

    def _hanging(self) -> list[str]:
        """The bells in the folder, listed anew when it has changed, or may have within the grain of its time stamp."""
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
        for name, bell in self._own.values():
            asyncio.get_running_loop().remove_reader(bell)
            bell.close()
            self._sweep(name)
        self._own.clear()
        self._names.clear()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _send(self, name: str) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            self._sender.sendto(b"!", self._address(name))
        except ConnectionRefusedError:
            self._sweep(name)
        except OSError:
            pass  # a full socket has a wake-up waiting in it already

    def _sweep(self, name: str) -> None:
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


def _drain(bell: socket.socket, rung: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        while bell.recv(64):
            pass
    rung()
