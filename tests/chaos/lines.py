"""A Valkey for the line of one world, and what is done to it: emptied, killed, set back to an old copy, cut off, stopped,
paused, filled up. Each must cost time at most."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import redis.asyncio as driver
from redis.exceptions import RedisError

from tests.servers import proxy as proxies
from tests.servers.valkey import Server

if TYPE_CHECKING:
    from tests.chaos.world import World

LOST = "line lost under load: "
LINED_UP = "jobs that stood in the line when it was lost"
WORK = 40  # events between two losses
PAUSE = 10.0  # seconds of CLIENT PAUSE
FILLED = 30.0  # seconds within which a line is filled again
# Counts what stands in the line, and empties it, so that nothing comes in between.
_FLUSH = """
local standing = 0
for _, key in ipairs(redis.call('KEYS', 'demora:*')) do
    if redis.call('TYPE', key).ok == 'zset' then standing = standing + redis.call('ZCARD', key) end
end
if ARGV[1] == 'flush' then redis.call('FLUSHALL') end
return standing
"""


class LineServer:
    """A server that keeps nothing; the processes of the world reach it as they are told."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["LineServer"]:
        self._busy = asyncio.Lock()
        self._server = await asyncio.to_thread(Server)
        try:
            yield self
        finally:
            self._server.go_on()
            async with self._busy:
                await asyncio.to_thread(self._server.close)

    @property
    def url(self) -> str:
        return self._server.url

    def undisturbed(self) -> asyncio.Lock:
        """While it is held nobody else does anything to the server."""
        return self._busy

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Any]:
        """A connection to it."""
        client = driver.Redis.from_url(self.url, decode_responses=True, socket_timeout=PAUSE + 5)
        try:
            yield client
        finally:
            await client.aclose()

    async def count(self, then: str = "") -> int:
        """How many jobs stand in the line; `flush` empties it in the same moment."""
        async with self.asked() as client:
            return int(await client.eval(_FLUSH, 0, then))

    async def is_filled(self) -> bool:
        """Whether the line says of itself that all that is due soon stands in it."""
        with suppress(RedisError, OSError):
            async with self.asked() as client:
                states = [await client.hgetall(key) for key in await client.keys("demora:*:state")]
                return any("epoch" in state and state["epoch"] == state.get("filled") for state in states)
        return False

    async def restart(self, down: float, *, old: bool = False) -> None:
        """Kill it, and start it again after so many seconds, empty or with what was copied by `save`."""
        await asyncio.shield(asyncio.ensure_future(self._restart(down, old)))

    async def save(self) -> None:
        async with self.asked() as client:
            await client.save()
        self._dump.rename(self._copy)

    async def _restart(self, down: float, old: bool) -> None:
        await asyncio.to_thread(self._server.kill)
        if old:
            shutil.copy(self._copy, self._dump)
        await asyncio.sleep(down)
        await asyncio.to_thread(self._server.start)
        self._dump.unlink(missing_ok=True)

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """It hears and answers nothing, while its connections stay."""
        self._server.pause()
        try:
            yield
        finally:
            self._server.go_on()

    @property
    def _dump(self) -> Any:
        return self._server.folder / "dump.rdb"

    @property
    def _copy(self) -> Any:
        return self._server.folder / "old.rdb"


async def flush(world: "World") -> bool:
    """FLUSHALL, and now and then another before the line is full again."""
    line = _line(world)
    async with line.undisturbed():
        if not await _in_use(world):
            return False
        world.besides[LINED_UP] += await line.count("flush")
        world.happened(f"{LOST}FLUSHALL")
        if world.chance.random() < 0.3:
            await asyncio.sleep(world.chance.uniform(0, 0.3))
            await line.count("flush")
            world.happened("FLUSHALL once more while it is filled")
    return True


async def kill(world: "World") -> bool:
    """kill -9, and a start with nothing in it."""
    line = _line(world)
    async with line.undisturbed():
        if not await _in_use(world):
            return False
        world.besides[LINED_UP] += await line.count()
        await line.restart(world.chance.choice((0, 0.1, 0.5, 1.5)))
        world.happened(f"{LOST}kill -9 and an empty start")
    return True


async def old_copy(world: "World") -> bool:
    """A start from what was saved a while ago: most of what stands there has run since."""
    line = _line(world)
    async with line.undisturbed():
        if not await _in_use(world):
            return False
        await line.save()
        if not await _in_use(world, work=5 * WORK):
            return False
        await line.restart(world.chance.choice((0, 0.3)), old=True)
        world.happened("kill -9, and a start from an old dump")
    return True


async def stop(world: "World") -> bool:
    line = _line(world)
    async with line.undisturbed():
        if not await _in_use(world):
            return False
        async with line.stopped():
            await asyncio.sleep(world.chance.uniform(1.5, 5))
        world.happened("line stopped and continued")
    return True


async def pause(world: "World") -> bool:
    """Everybody who asks waits; what they asked is carried out once it is over, long after they gave up."""
    line = _line(world)
    async with line.undisturbed():
        if not await _in_use(world):
            return False
        async with line.asked() as client:
            await client.execute_command("CLIENT", "PAUSE", int(PAUSE * 1000), "ALL")
            await client.ping()
        world.happened(f"CLIENT PAUSE of {PAUSE:g} s")
    return True


async def fill_up(world: "World") -> bool:
    """The server has no room for another entry; it may only be read and emptied."""
    line = _line(world)
    async with line.undisturbed(), line.asked() as client:
        if not await _in_use(world):
            return False
        before = await _refused(client)
        await client.config_set("maxmemory", 1)
        try:
            await asyncio.sleep(world.chance.uniform(1.5, 4))
            refused = await _refused(client) > before
        finally:
            await client.config_set("maxmemory", 0)
        if refused:
            world.happened("maxmemory reached")
    return refused


async def cut_off(world: "World") -> bool:
    """One worker cannot reach the line while all others can; then what it said arrives, late."""
    async with proxies.before(_line(world).url) as (proxy, url):
        worker = world.start_worker(DEMORA_REDIS_URL=url)
        try:
            if not await _is_at_work(world, worker.pid):
                return False
            proxy.hold()
            await asyncio.sleep(world.chance.uniform(1.5, 4))
            ran = "started" in worker.said and worker.code is None
            proxy.release()
            await worker.ended(world.chance.uniform(0.5, 1.5))
            if ran:
                world.happened("worker cut off from the line, and back")
            return ran
        finally:
            world.kill(worker)


async def _in_use(world: "World", work: int = WORK) -> bool:
    """Wait until the line is full and there is something to disturb."""
    before = world.watch.seen
    for _ in range(int(FILLED / 0.02)):
        if world.watch.seen > before + work and await _line(world).is_filled():
            return True
        await asyncio.sleep(0.02)
    if world.watch.seen > before + work:
        world.troubles.append(f"the line was not filled within {FILLED:g} s")
    return False


async def _is_at_work(world: "World", pid: int) -> bool:
    for _ in range(500):
        if world.watch.runs(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def _refused(client: Any) -> int:
    """How many commands were refused for want of memory."""
    return int((await client.info("errorstats")).get("errorstat_OOM", {}).get("count", 0))


def _line(world: "World") -> LineServer:
    assert world.line is not None
    return world.line
