"""The simulated machine: one database, one clock, notifications between processes, and processes that can be killed."""

import contextlib
import contextvars
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

import apsw

from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection import connections
from demora.store.jobs import Topic
from tests.sim.loop import OWNER, SimLoop

START = 1_800_000_000_000  # wall clock at the beginning, milliseconds


class SimClock:
    """Both clocks follow virtual time; the wall clock can be stepped."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop, self.stepped = loop, 0

    def wall(self) -> int:
        return START + self.stepped + int(self._loop.time() * 1000)

    def wall_us(self) -> int:
        return self.wall() * 1000

    def boot(self) -> int:
        return int(self._loop.time() * 1000)

    def boot_id(self) -> str:
        return "simulated"


class SharedConnection(apsw.Connection):
    """One database in memory for all processes: a process that closes it does not close it for the others."""

    def close(self, force: bool = False) -> None:
        pass


class SimNotifier:
    """The notifier of one store. All stores share the listeners. A notification may be lost, as the nemesis decides."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._owner = OWNER.get()

    def listen(self, topic: Topic, callback: Callable[[], None]) -> bool:
        self._world.listeners.setdefault((self._owner, topic), (contextvars.copy_context(), callback, self))
        return True

    def notify(self, topics: Iterable[Topic]) -> None:
        for (_, topic), (context, callback, notifier) in list(self._world.listeners.items()):
            if topic in topics and notifier is not self and not self._world.loses_notification():
                self._world.loop.call_soon(callback, context=context)

    def close(self) -> None:
        for key in [key for key in self._world.listeners if key[0] == self._owner]:
            del self._world.listeners[key]


class World:
    """All that the processes of one simulation share."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"world {seed}")
        self.loop = SimLoop(seed)
        self.clock = SimClock(self.loop)
        self.listeners: dict[tuple[str, Topic], tuple[contextvars.Context, Callable[[], None], SimNotifier]] = {}
        self.lost_notifications = 0.0
        self.fired: dict[str, int] = {}
        self._stoppers: dict[str, tuple[contextvars.Context, Callable[[], None]]] = {}
        self._pipes: dict[str, list[Callable[[], None]]] = {}
        self._db = _database()
        self._ids = 0

    def store(self) -> SqliteStore:
        """A store for the calling process, on the one database."""

        def connect(_: Path | None) -> apsw.Connection:
            return self._db

        return SqliteStore(clock=self.clock, inline=True, connect=connect, notifier=SimNotifier(self), audit=True)  # type: ignore[arg-type]

    def new_id(self) -> str:
        """Ids that grow, as UUIDs of version 7 do."""
        self._ids += 1
        return str(UUID(int=(START << 80) | (7 << 76) | (2 << 62) | self._ids))

    def kill(self, owner: str) -> None:
        """kill -9: what it had not committed is undone by the database, and it hears no notification."""
        self.loop.kill(owner)
        if self._db.in_transaction and OWNER.get() == owner:
            self._db.execute("rollback")
        for key in [key for key in self.listeners if key[0] == owner]:
            del self.listeners[key]
        for close in self._pipes.pop(owner, ()):
            close()

    def on_death(self, owner: str, close: Callable[[], None]) -> None:
        """What the end of a process closes."""
        self._pipes.setdefault(owner, []).append(close)

    def terminate(self, owner: str) -> None:
        """SIGTERM: the process hears it in its own time."""
        if owner in self._stoppers:
            context, stop = self._stoppers[owner]
            self.loop.call_soon(stop, context=context)

    def on_terminate(self, stop: Callable[[], None]) -> None:
        """What the calling process does on SIGTERM."""
        self._stoppers[OWNER.get()] = contextvars.copy_context(), stop

    def happened(self, fault: str) -> None:
        self.fired[fault] = self.fired.get(fault, 0) + 1

    def loses_notification(self) -> bool:
        lost = self.random.random() < self.lost_notifications
        if lost:
            self.happened("notification lost")
        return lost

    def wall(self) -> float:
        return self.clock.wall() / 1000

    def close(self) -> None:
        self.loop.close()
        with contextlib.suppress(apsw.Error):
            apsw.Connection.close(self._db)


def _database() -> SharedConnection:
    db = SharedConnection(":memory:")
    connections.migrate(db)
    return db
