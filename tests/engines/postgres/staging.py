"""Two calls on PostgreSQL, interleaved by hand: one is held at a chosen point, and the other runs until it ends or waits.

An actor is a store of its own with one connection. It passes a gate before each statement, in the middle of each statement
that reads the clock, and after each statement before its commit. A statement outside of a transaction gets one of its own
for this. In the middle means: the statement has its snapshot, and waits for an advisory lock before it reads the clock. Only
one of the two actors moves at a time, so an interleaving is the same in every run.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.postgres.connection.connections import PASSING, Pool, Session, Statement, connected
from tests.clock import TestClock

MIDDLE = 7_000_017  # the advisory lock at which a statement stops in the middle
PATIENCE = 30.0  # seconds until an interleaving counts as stuck
LOOK_AFTER = 0.002  # seconds that an actor runs before the server is asked what it waits for; to ask stops all who lock
_READS_CLOCK = "* 1000000)::bigint) as us) as read"
_STOPS_THERE = f"* 1000000)::bigint) as us from pg_advisory_xact_lock({MIDDLE})) as read"

Call = Callable[[Any], Awaitable[Any]]


class Gate(NamedTuple):
    """A point at which an actor can be held."""

    when: str  # before, in or after
    statement: str

    def __str__(self) -> str:
        return f"{self.when} {self.statement}"


class Answered(NamedTuple):
    """The answer of a call, or what it raised."""

    value: Any


class Actor:
    """A store that stops at gates. `hold` is the number of the first gate to stop at; None stops nowhere."""

    def __init__(self, name: str, url: str, schema: str, clock: TestClock) -> None:
        self.name = name
        options = PostgresOptions(schema=schema, connections=1, notify=False)
        self.store = PostgresStore(url, options, clock=clock)
        self.pid = 0
        self.deadlocks = 0
        self._task: asyncio.Task[Answered] | None = None
        self._open = asyncio.Event()
        self._rested = asyncio.Event()
        self._begin(None)

    def _begin(self, hold: int | None) -> None:
        self.hold, self.passed, self.standing, self.waited = hold, list[Gate](), False, False

    async def open(self) -> None:
        await self.store.open()
        pool = self.store._database.opened()
        usual = pool.session
        pool.session = lambda: self._session(pool, usual)  # type: ignore[method-assign]
        async with pool.session() as session:
            assert session.backend is not None
            self.pid = session.backend[0]

    @asynccontextmanager
    async def _session(self, pool: Pool, usual: Any) -> AsyncIterator[Session]:
        async with usual() as session:
            try:
                yield _StagedSession(self, session, pool)
            except PASSING:
                self.deadlocks += 1
                raise

    def start(self, call: Call, *, hold: int | None) -> None:
        self._begin(hold)
        self._rested.clear()
        self._task = asyncio.ensure_future(self._answer(call))
        self._task.add_done_callback(lambda _: self._rested.set())

    async def _answer(self, call: Call) -> Answered:
        try:
            return Answered(await call(self.store))
        except Exception as problem:
            return Answered(f"{type(problem).__name__}: {problem}")

    async def alone(self, call: Call) -> Answered:
        """Run a call with nothing beside it."""
        self._begin(None)
        return await self._answer(call)

    @property
    def done(self) -> bool:
        assert self._task is not None
        return self._task.done()

    def answer(self) -> Answered:
        assert self._task is not None
        return self._task.result()

    def step(self) -> None:
        """Open the gate that the actor stands at."""
        self.standing = False
        self._rested.clear()
        self._open.set()

    async def rests(self, within: float) -> bool:
        """Whether the actor has ended or stands at a gate, or does so within some seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rested.wait(), within)
        return self.done or self.standing

    async def gate(self, when: str, statement: str) -> bool:
        """Pass a gate, or stand there until it is opened. Returns whether to stop in the middle of the statement."""
        number = len(self.passed)
        self.passed.append(Gate(when, statement))
        if self.hold is None or number < self.hold:
            return False
        if when == "in":
            return number == self.hold
        self._open.clear()
        self.standing = True
        self._rested.set()
        await self._open.wait()
        return False

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.store.close()


class _StagedSession(Session):
    """A session whose statements pass the gates of an actor."""

    __slots__ = ("_actor", "_begins")

    def __init__(self, actor: Actor, session: Session, pool: Pool) -> None:
        super().__init__(session._connection, pool.statements, session.wall_us, session.lined, session._distance)
        self._actor, self._begins = actor, False

    def transaction(self, **how: Any) -> Any:
        self._begins = not self._connection.is_in_transaction()
        return super().transaction(**how)

    async def rows(self, statement: str | Statement, **what: Any) -> list[Any]:
        assert isinstance(statement, str)
        inside = self._connection.is_in_transaction()
        if not inside or self._begins:
            await self._actor.gate("before", statement)
        self._begins = False
        sql, names = self._statements[statement]
        stops = _READS_CLOCK in sql and await self._actor.gate("in", statement)
        held = Statement(sql.replace(_READS_CLOCK, _STOPS_THERE), names) if stops else statement
        if inside:
            found = await super().rows(held, **what)
            await self._actor.gate("after", statement)
            return found
        async with self._connection.transaction():
            found = await super().rows(held, **what)
            await self._actor.gate("after", statement)
        return found


class Stage:
    """Two actors on one schema, and a connection that watches what they wait for."""

    def __init__(self, url: str, schema: str, clock: TestClock) -> None:
        self._url = url
        self.held, self.other = (Actor(name, url, schema, clock) for name in ("held", "other"))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Stage"]:
        await self.held.open()
        await self.other.open()
        async with connected(self._url) as self._watch:
            self._watching: int = await self._watch.fetchval("select pg_backend_pid()")
            try:
                yield self
            finally:
                await self._watch.execute("select pg_advisory_unlock_all()")
                await self.held.close()
                await self.other.close()

    async def race(self, held: Call, gate: int, other: Call) -> tuple[Answered, Answered]:
        """Hold one call at a gate, run the other to its end or to a lock, and let the first go on from gate to gate.

        Whenever that frees the other call, it runs on while the first one stands.
        """
        async with asyncio.timeout(PATIENCE):
            await self._watch.execute("select pg_advisory_lock($1)", MIDDLE)
            self.held.start(held, hold=gate)
            await self._rest(self.held)
            self.other.start(other, hold=None)
            await self._rest(self.other)
            await self._watch.execute("select pg_advisory_unlock($1)", MIDDLE)
            while not (self.held.done and self.other.done):
                if self.held.standing:
                    self.held.step()
                await self._rest(self.held)
                await self._rest(self.other)
        return self.held.answer(), self.other.answer()

    async def _rest(self, actor: Actor) -> None:
        """Wait until an actor has ended, stands at a gate, or waits for a lock."""
        while not (await actor.rests(LOOK_AFTER) or await self._waits(actor)):
            pass

    async def _waits(self, actor: Actor) -> bool:
        blocking: list[int] = await self._watch.fetchval("select pg_blocking_pids($1)", actor.pid)
        actor.waited |= any(pid != self._watching for pid in blocking)
        return bool(blocking)
