"""What the line holds is untrusted: another program on the server may have written anything there. Jobs still run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis.asyncio as driver

from demora.line import LinedStore
from demora.line.redis import RedisLine
from demora.store.store import Store
from tests.builders import DONE, add_ids, claim, settle
from tests.clock import TestClock
from tests.servers.valkey import Server
from tests.setups import SETUPS, Setup

LINED = [setup for setup in SETUPS if setup.name in ("sqlite-file", "postgres")]
WORDS = (b"", b"nonsense", b"\xff\xfe", b"9" * 30, b"-1", b"nan", b"a b c", b"\x00", b"01a1ece4-d645-7324-9ead-bf5b2875ca1z")


@pytest.fixture(autouse=True)
def _brisk(brisk: None) -> None:
    pass


@pytest.fixture(params=LINED, ids=lambda setup: setup.name)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock, server: Server) -> AsyncIterator[Store]:
    setup: Setup = request.param
    store = LinedStore(setup.make(tmp_path, clock), lambda: RedisLine(server.url))  # type: ignore[arg-type]
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "kinds",
    [{b"zset"}, {b"set"}, {b"hash"}, {b"zset", b"set", b"hash", b"string"}],
    ids=lambda kinds: "+".join(sorted(kind.decode() for kind in kinds)),
)
async def test_a_line_that_another_program_wrote_to_loses_and_stops_nothing(
    store: Store, server: Server, kinds: set[bytes], word: bytes
) -> None:
    await add_ids(store, {}, {})
    await scribble(server, kinds, word)
    ran: list[str] = []
    for _ in range(20):
        if len(ran) >= 4:
            break
        for job in (await claim(store, 5)).jobs:
            ran.append(job.lease.id)
            await settle(store, job, DONE)
        if len(ran) == 2:
            await add_ids(store, {}, {})
            await scribble(server, kinds, word)
    assert len(set(ran)) == len(ran) == 4


async def scribble(server: Server, kinds: set[bytes], word: bytes) -> None:
    """Write it into every key of these kinds in the line, as a member, a field and a value of each field."""
    async with driver.Redis.from_url(server.url) as client:
        for key in await client.keys("demora:*"):
            kind = await client.type(key)
            if kind == b"zset" and kind in kinds:
                await client.zadd(key, {word: 0})
            elif kind == b"set" and kind in kinds:
                await client.sadd(key, word)
            elif kind == b"hash" and kind in kinds:
                await client.hset(key, mapping=dict.fromkeys([word, *await client.hkeys(key)], word))
            elif kind == b"string" and kind in kinds:
                await client.set(key, word)
