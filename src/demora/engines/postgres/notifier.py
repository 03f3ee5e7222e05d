"""Waiting without polling: a sleeper is woken by a bell, and as a safety net comes back after a while by itself."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import asyncpg

from ...store.jobs import Topic
from ...system import forks
from ...system.timers import TimedWait
from ..options import PostgresOptions, driver_url
from . import connections
from .connections import CONNECT, Clock, Pool, Session, connection_options, statements

CLOCK_LOOK = 1.95  # seconds between looks for a stepped clock
CLOCK_STEP = 50  # milliseconds that count as a step
SAFETY = 5.0  # seconds after which a sleeper looks again although nobody rang
DEAF_LOOK = 0.25  # seconds between looks when no bell can reach us
# What nobody waits for: no claim hands out a job that expired, and each follows the paces as they are.
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})


class Waiter:
    """A subscription on one topic. `reachable` says whether bells can be heard."""

    def __init__(self, topic: Topic, reachable: Callable[[], bool]) -> None:
        self.topic = topic
        self._reachable = reachable
        self._nap = TimedWait()

    def wake(self) -> None:
        self._nap.ring()

    def clear(self) -> None:
        self._nap.forget()

    async def wait(self, timeout: float | None) -> bool:
        longest = SAFETY if self._reachable() else DEAF_LOOK
        if self.topic in UNHURRIED and timeout is not None:
            longest = timeout
        return await self._nap.take(longest if timeout is None else min(timeout, longest))


# Wake-ups across processes by LISTEN and NOTIFY, each topic on its own channel.


BREATH = 0.002  # seconds between two rings
PAUSE = 1.0  # seconds before a lost connection is made anew
ANSWER = 5.0  # seconds that the server may take to say the time

_COMMIT = ""  # in place of a sender: a transaction that was not ours to follow
_LOOKS = f"idle workers look every {DEAF_LOOK * 1000:.0f} ms"
UNHEARD = f"LISTEN does not reach the database: {_LOOKS}"
_POOLED = f"no LISTEN behind a pooler without database_listen_url: {_LOOKS}"
_OFF = f"wake-ups are switched off by database_notify: {_LOOKS}"


class Notifier:
    """The bells of one store: rung through its pool, heard on a connection of its own, made when somebody first sleeps."""

    def __init__(
        self,
        url: str,
        options: PostgresOptions,
        clock: Clock,
        woken: Callable[[set[Topic]], None],
        unplaced: Callable[[], None],
    ) -> None:
        self._url = driver_url(url) if options.listen_url is None else driver_url(options.listen_url, "database_listen_url")
        self._options, self._clock, self._woken, self._unplaced = options, clock, woken, unplaced
        self._own = secrets.token_hex(8)
        self._channels = {f"demora_{options.schema}_{topic.value}": topic for topic in Topic}
        self._listening: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._ringing: asyncio.Task[None] | None = None
        self._topics: set[Topic] = set()
        self.reachable = False

    def note(self) -> str | None:
        """What is to be said of wake-ups where they do not work; None where they do, or where nobody sleeps."""
        tried = self._ready is not None and self._ready.done()
        return switched_off(self._options) or (UNHEARD if tried and not self.reachable else None)

    def hang(self) -> None:
        """Hear the rings of others from now on. `hung` says when that is so."""
        if self._listening is None and self._options.listens:
            self._ready = asyncio.get_running_loop().create_future()
            self._listening = asyncio.ensure_future(self._listen())

    async def hung(self) -> None:
        """Return once the bells can be heard, or it is plain that they cannot."""
        if self._ready is not None and not self._ready.done():
            await asyncio.wait([self._ready], timeout=CONNECT)

    async def ring(self, topics: set[Topic], pool: Pool) -> None:
        """Wake the sleepers of other stores soon; never fails."""
        if not self._options.notify:
            return
        self._topics |= topics
        if self._ringing is None:
            self._ringing = asyncio.ensure_future(self._ring(pool))
            if not pool.lined:  # else sleepers are woken by the line, once the jobs are there
                await asyncio.sleep(0)  # it is sent before whoever rang goes on, with what may keep the loop busy for long

    async def ring_at_commit(self, topics: set[Topic], session: Session) -> None:
        """Wake all sleepers, this store's too, when the transaction of a session commits, and only then."""
        if topics and self._options.notify:
            await session.rows("notify", channels=self._channels_of(topics), sender=_COMMIT)

    async def close(self) -> None:
        if self._ringing is not None:
            await asyncio.wait([self._ringing])
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self._listening = self._ready = None
        self.reachable = False

    async def _ring(self, pool: Pool) -> None:
        try:
            while self._topics:
                topics, self._topics = self._topics, set()
                with contextlib.suppress(Exception):  # sleepers come back by themselves
                    async with pool.session() as session:
                        await session.rows("notify", channels=self._channels_of(topics), sender=self._own)
                await asyncio.sleep(BREATH)
        finally:
            self._ringing = None

    def _channels_of(self, topics: set[Topic]) -> list[str]:
        return [channel for channel, topic in self._channels.items() if topic in topics]

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except (*connections.DRIVER, ValueError):
                lost, self.reachable = self.reachable, False
                self._say_ready()
                if lost:
                    self._wake_all()  # they wait no longer than one who cannot hear may
            await asyncio.sleep(PAUSE)

    async def _hear(self) -> None:
        """Listen on a connection until it breaks."""
        options = connection_options(self._options) if self._options.listen_url is None else {"timeout": CONNECT}
        connection = await asyncpg.connect(self._url, **options)
        forks.release_in_child(connection, lambda held: forks.descriptors_of(held._transport))
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._heard)
            again, self.reachable = self._ready is not None and self._ready.done(), True
            self._say_ready()
            if again:
                self._wake_all()  # nobody knows what was rung meanwhile
            await self._watch_clock(connection)
        finally:
            connection.terminate()

    async def _watch_clock(self, connection: Any) -> None:
        """Wake everybody when the database's clock is stepped; that it answers shows that the connection is alive."""
        before = await self._drift(connection)
        while True:
            await asyncio.sleep(CLOCK_LOOK)
            drift = await self._drift(connection)
            if abs(drift - before) > CLOCK_STEP:
                self._wake_all()
                before = drift

    async def _drift(self, connection: Any) -> float:
        """How far the database's clock is from the loop's, in milliseconds."""
        sql = statements(self._options.schema)["now"].sql
        us = await connection.fetchval(sql, self._clock(), timeout=ANSWER)
        return float(us / 1000 - asyncio.get_running_loop().time() * 1000)

    def _heard(self, connection: Any, pid: int, channel: str, sender: str) -> None:
        if sender == _COMMIT:
            self._unplaced()
        if sender != self._own:
            self._woken({self._channels[channel]})

    def _wake_all(self) -> None:
        """Wake every waiter of this store, and have its line swept: any notification may have been missed."""
        self._unplaced()
        self._woken(set(Topic))

    def _say_ready(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)


def switched_off(options: PostgresOptions) -> str | None:
    """Why nobody listens with these options; None if somebody does."""
    return None if options.listens else _POOLED if options.notify else _OFF
