"""Wake-ups on PostgreSQL: a waiter sleeps until a process notifies its topic, and returns after a while as a safety net.

Notifications between processes use LISTEN and NOTIFY, with one channel for each topic. A store sends them through its pool,
and listens on a connection of its own, which it opens with its first waiter.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import asyncpg

from ...store.jobs import Topic
from ...system import forks, notices
from ...system.timers import TimedWait
from ..options import PostgresOptions, driver_url
from ..sql.constants import UNHURRIED
from .connection import connections
from .connection.connections import CONNECT, Pool, ReadTime, Session, connection_options, statements

CLOCK_LOOK = 1.95  # seconds between looks for a stepped clock
CLOCK_STEP = 50  # milliseconds that count as a step
SAFETY = 5.0  # seconds after which a waiter returns without a notification
DEAF_LOOK = 0.25  # the same while no notification can reach this process
BREATH = 0.002  # seconds between two NOTIFY statements
PAUSE = 1.0  # seconds before a lost connection is opened again
ANSWER = 5.0  # seconds that the server may take to answer with its time

_COMMIT = ""  # the sender of a notification at the commit of a caller's own transaction
_LOOKS = f"idle workers look every {DEAF_LOOK * 1000:.0f} ms"
UNHEARD = f"LISTEN does not reach the database: {_LOOKS}"
_POOLED = f"no LISTEN behind a pooler without database_listen_url: {_LOOKS}"
_OFF = f"wake-ups are switched off by database_notify: {_LOOKS}"


class Waiter:
    """A subscription on one topic. `reachable` says whether notifications of other processes arrive."""

    def __init__(self, topic: Topic, reachable: Callable[[], bool]) -> None:
        self.topic = topic
        self._reachable = reachable
        self._sleep = TimedWait()

    def wake(self) -> None:
        self._sleep.notify()

    def clear(self) -> None:
        self._sleep.clear()

    async def wait(self, timeout: float | None) -> bool:
        longest = SAFETY if self._reachable() else DEAF_LOOK
        if timeout is not None and (self.topic in UNHURRIED or (self.topic is Topic.SCHEDULES and self._reachable())):
            longest = timeout
        return await self._sleep.wait(longest if timeout is None else min(timeout, longest))


class Notifier:
    """Notifies the other stores on a database, and listens for their notifications.

    `wake` is called with the topics that another store notified. `on_unplaced` is called when jobs may have been added that
    no process puts into the line.
    """

    def __init__(
        self,
        url: str,
        options: PostgresOptions,
        clock: ReadTime,
        wake: Callable[[set[Topic]], None],
        on_unplaced: Callable[[], None],
    ) -> None:
        self._url = driver_url(url) if options.listen_url is None else driver_url(options.listen_url, "database_listen_url")
        self._options, self._clock, self._wake, self._on_unplaced = options, clock, wake, on_unplaced
        self._own = secrets.token_hex(8)
        self._channels = {f"demora_{options.schema}_{topic.value}": topic for topic in Topic}
        self._listening: asyncio.Task[None] | None = None
        self._tried: asyncio.Future[None] | None = None  # done once LISTEN has succeeded or failed
        self._sending: asyncio.Task[None] | None = None
        self._topics: set[Topic] = set()
        self.reachable = False

    def note(self) -> str | None:
        """Why notifications do not arrive; None if they do, or if this store has had no waiter yet."""
        tried = self._tried is not None and self._tried.done()
        return switched_off(self._options) or (UNHEARD if tried and not self.reachable else None)

    def listen(self) -> None:
        """Start to listen, unless that is done or switched off."""
        if self._listening is None and self._options.listens:
            self._tried = asyncio.get_running_loop().create_future()
            self._listening = asyncio.ensure_future(self._listen())

    async def ready(self) -> None:
        """Return once LISTEN has succeeded or failed; at once if this store has no waiter."""
        if self._tried is not None and not self._tried.done():
            await asyncio.wait([self._tried], timeout=CONNECT)

    async def notify(self, topics: set[Topic], pool: Pool) -> None:
        """Wake the waiters of other stores soon; never fails."""
        if not self._options.notify:
            return
        self._topics |= topics
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send(pool))
            if not pool.lined:  # with a line, the line wakes waiters once the jobs are in it
                await asyncio.sleep(0)  # the statement is sent before the caller goes on and may keep the loop busy

    async def notify_at_commit(self, topics: set[Topic], session: Session) -> None:
        """Wake all waiters, also this store's, if and when the transaction of a session commits."""
        if topics and self._options.notify:
            await session.rows("notify", channels=self._channels_of(topics), sender=_COMMIT)

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.wait([self._sending])
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self._listening = self._tried = None
        self.reachable = False

    async def _send(self, pool: Pool) -> None:
        try:
            while self._topics:
                topics, self._topics = self._topics, set()
                with contextlib.suppress(Exception):  # waiters return by themselves after a while
                    async with pool.session() as session:
                        await session.rows("notify", channels=self._channels_of(topics), sender=self._own)
                await asyncio.sleep(BREATH)
        finally:
            self._sending = None

    def _channels_of(self, topics: set[Topic]) -> list[str]:
        return [channel for channel, topic in self._channels.items() if topic in topics]

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except Exception as problem:  # a defect must not end this task: waiters would rely on it for good
                if not isinstance(problem, (*connections.DRIVER, ValueError)):
                    notices.store_trouble("listening for wake-ups", problem, PAUSE)
                lost, self.reachable = self.reachable, False
                self._end_try()
                if lost:
                    self._wake_all()  # so that they poll from now on
            await asyncio.sleep(PAUSE)

    async def _listen_until_lost(self) -> None:
        """Listen on a new connection until it breaks."""
        options = connection_options(self._options) if self._options.listen_url is None else {"timeout": CONNECT}
        connection = await asyncpg.connect(self._url, **options)
        forks.release_in_child(connection, lambda held: forks.descriptors_of(held._transport))
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._receive)
            again, self.reachable = self._tried is not None and self._tried.done(), True
            self._end_try()
            if again:
                self._wake_all()  # notifications may have been missed meanwhile
            await self._watch_clock(connection)
        finally:
            connection.terminate()

    async def _watch_clock(self, connection: Any) -> None:
        """Wake all waiters when the database's clock is stepped. Raises when the connection no longer answers."""
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

    def _receive(self, connection: Any, pid: int, channel: str, sender: str) -> None:
        if sender == _COMMIT:
            self._on_unplaced()
        if sender != self._own:
            self._wake({self._channels[channel]})

    def _wake_all(self) -> None:
        """Wake every waiter of this store, and have its line swept: any notification may have been missed."""
        self._on_unplaced()
        self._wake(set(Topic))

    def _end_try(self) -> None:
        if self._tried is not None and not self._tried.done():
            self._tried.set_result(None)


def switched_off(options: PostgresOptions) -> str | None:
    """Why a store with these options does not listen; None if it does."""
    return None if options.listens else _POOLED if options.notify else _OFF
