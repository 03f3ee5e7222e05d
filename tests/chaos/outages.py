"""A PostgreSQL for one world, and what is done to it: restarted, robbed of its connections, cut off, filled up."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, get_args

import asyncpg

from tests.servers import proxy as proxies
from tests.servers.postgres import Server
from tests.servers.proxy import Moment

if TYPE_CHECKING:
    from tests.chaos.world import World

RESTARTS, CUTS = "immediate restart of the server", "COMMIT sent, then cut"
SEATS = 90  # connections that the server has for all
CONNECTIONS = 3  # of a process to its pool
WORK = 100  # events between two outages
COMMITTED = 5.0  # seconds within which something is committed
UNREACHABLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
OURS = "select pid from pg_stat_activity where application_name = 'demora' and backend_type = 'client backend'"


class Postgres:
    """A server that keeps its promises, and the proxy through which the processes of the world reach it."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Postgres"]:
        self._busy = asyncio.Lock()
        self._server = await asyncio.to_thread(Server, (f"max_connections={SEATS}",))
        try:
            async with proxies.before(self._server.url) as (self.proxy, self.proxied):
                yield self
        finally:
            async with self._busy:
                await asyncio.to_thread(self._server.close)

    @property
    def url(self) -> str:
        """The way that no proxy stands in."""
        return self._server.url

    async def restart(self, down: float) -> None:
        """Kill it, and start it again after so many seconds; it recovers."""
        await asyncio.shield(self._restart(down))

    async def _restart(self, down: float) -> None:
        async with self._busy:
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(down)
            await asyncio.to_thread(self._server.start)

    def undisturbed(self) -> asyncio.Lock:
        """While it is held nobody else restarts the server or fills it up."""
        return self._busy

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Any]:
        """A connection to a server that is undisturbed."""
        async with self._busy:
            connection = await _connect(self.url)
            try:
                yield connection
            finally:
                connection.terminate()


async def restart(world: "World") -> bool:
    """What was committed is there again, and what was under way is gone or not, as nobody can tell."""
    if not await _at_work_again(world):
        return False
    await _postgres(world).restart(world.chance.choice((0, 0.1, 0.5)))
    world.happened(RESTARTS)
    return True


async def _at_work_again(world: "World") -> bool:
    """Wait until there is something to disturb."""
    before = world.watch.seen
    for _ in range(1000):
        if world.watch.seen > before + WORK:
            return True
        await asyncio.sleep(0.02)
    return False


async def kill_backend(world: "World") -> bool:
    """kill -9 of one: PostgreSQL ends all the others and recovers."""
    if not await _at_work_again(world):
        return False
    async with _postgres(world).asked() as connection:
        backends = [pid for (pid,) in await connection.fetch(OURS)]
        if not backends:
            return False
        os.kill(world.chance.choice(backends), signal.SIGKILL)
        world.happened("kill -9 of a backend")
        await _until_recovered(world)
    return True


async def _until_recovered(world: "World") -> None:
    """Afterwards the server takes connections again."""
    await asyncio.sleep(0.1)
    while True:
        with suppress(*UNREACHABLE):
            return (await _connect(_postgres(world).url)).terminate()  # type: ignore[no-any-return]
        await asyncio.sleep(0.05)


async def end_backends(world: "World") -> bool:
    """pg_terminate_backend of some, whatever they are at."""
    async with _postgres(world).asked() as connection:
        backends = [pid for (pid,) in await connection.fetch(OURS)]
        chosen = world.chance.sample(backends, min(3, len(backends)))
        ended = [pid for pid in chosen if await connection.fetchval("select pg_terminate_backend($1)", pid)]
    world.fired["backend ended by an operator"] += len(ended)
    return bool(ended)


async def cut_commit(world: "World") -> bool:
    """Cut the connection of whoever commits next: most often once it is done and before the answer."""
    proxy, moment = _postgres(world).proxy, world.chance.choice((*get_args(Moment), "before the answer"))
    before = proxy.cuts
    proxy.cut_commit(world.chance.randint(1, 3), moment)
    for _ in range(int(COMMITTED / 0.01)):
        if proxy.cuts > before:
            world.happened("COMMIT cut before it arrived" if moment == "before it arrives" else f"{CUTS} {moment}")
            return True
        await asyncio.sleep(0.01)
    return False


async def partition(world: "World") -> bool:
    """One worker cannot reach the server for longer than its lease; then all that was kept back arrives, late."""
    async with proxies.before(_postgres(world).url) as (proxy, url):
        worker = world.start_worker(DEMORA_DATABASE_URL=url)
        try:
            if not await _at_work(world, worker.pid):
                return False
            proxy.hold()
            lapses = len(world.watch.lapses[worker.pid])
            await asyncio.sleep(world.lease / 1000 + world.chance.uniform(0.5, 1.5))
            proxy.release()
            await worker.ended(world.chance.uniform(0.5, 1))
            if len(world.watch.lapses[worker.pid]) > lapses:
                world.happened("worker cut off beyond its lease, overtaken, and back")
            return len(world.watch.lapses[worker.pid]) > lapses
        finally:
            world.kill(worker)


async def _at_work(world: "World", pid: int) -> bool:
    for _ in range(500):
        if world.watch.runs(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def fill_up(world: "World") -> bool:
    """Others take every connection that the server has, while ours are cut and must be made anew."""
    postgres = _postgres(world)
    async with AsyncExitStack() as stack, postgres.undisturbed():
        refused = await _take_seats(postgres, stack)
        postgres.proxy.cut_all()
        refused = await _take_seats(postgres, stack) and refused
        await asyncio.sleep(world.chance.uniform(0.5, 2))
    if refused:
        world.happened("no connection left on the server")
    return refused


async def _take_seats(postgres: Postgres, stack: AsyncExitStack) -> bool:
    """Connect until the server refuses; True if it did."""
    for _ in range(SEATS + 1):
        try:
            stack.callback((await _connect(postgres.url)).terminate)
        except asyncpg.TooManyConnectionsError:
            return True
    return False


async def _connect(url: str) -> Any:
    return await asyncpg.connect(url, timeout=10, statement_cache_size=0)


def _postgres(world: "World") -> Postgres:
    assert world.postgres is not None
    return world.postgres
