"""Which servers are refused at the start, and with which words."""

import asyncio
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as driver
import uvloop
from redis.asyncio.connection import AbstractConnection

from demora.engines import make_store
from demora.errors import BadSetting
from demora.line.port import LineAway, LineState
from demora.line.redis import RedisLine, connections
from demora.line.redis.keys import Keys
from tests.facts import eventually
from tests.servers import valkey
from tests.setups import redis_url


async def refused(url: str) -> str:
    line = RedisLine(url)
    try:
        with pytest.raises(BadSetting) as problem:
            await line.connect("db")
        return str(problem.value)
    finally:
        await line.close()


async def test_a_password_that_is_refused_is_named() -> None:
    redis_url()
    with valkey.running("--requirepass", "open sesame") as server:
        for url in (server.url, server.url.replace("://", "://:wrong@")):
            words = await refused(url)
            assert "user and password" in words
            assert "wrong" not in words.replace("WRONGPASS", "")
        line = RedisLine(server.url.replace("://", "://:open%20sesame@"))
        assert await line.connect("db")
        await line.close()


async def test_a_server_that_may_evict_keys_is_refused() -> None:
    redis_url()
    with valkey.running("--maxmemory-policy", "allkeys-lru") as server:
        words = await refused(server.url)
        assert "allkeys-lru" in words
        assert "CONFIG SET maxmemory-policy noeviction" in words


async def test_a_version_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "OLDEST", (99, 0))
    assert "Redis 7.0 or later" in await refused(redis_url())


async def test_a_server_that_was_restarted_is_never_taken_for_the_one_before() -> None:
    redis_url()
    with valkey.running() as server:
        line = RedisLine(server.url)
        await line.connect("db")
        server.kill()
        server.start()
        for _ in range(3):
            with pytest.raises(LineAway):
                await line.state()
        await eventually(lambda: asyncio.to_thread(server.connections), lambda open_: open_ == 0)
        await line.connect("db")
        assert (await line.state()).epoch is None
        await line.close()


async def test_a_closed_line_leaves_no_connection_open() -> None:
    redis_url()
    with valkey.running() as server:
        line = RedisLine(server.url)
        await line.connect("db")
        await line.state()
        assert server.connections() > 0
        await line.close()
        await eventually(lambda: asyncio.to_thread(server.connections), lambda open_: open_ == 0)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_line_that_is_closed_while_it_connects_is_away(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task closes it before each of the commands that a new connection sends, or while one is being sent."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(close_at_every_moment(redis_url(), monkeypatch))


async def close_at_every_moment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = RedisLine(url)
    for moment, turns in product(range(6), range(4)):
        await line.connect("db")
        with monkeypatch.context() as patched:
            answers = await asked_while_closed(line, moment, turns, patched)
        assert [answer for answer in answers if not isinstance(answer, LineState | LineAway)] == []
        await line.close()


async def asked_while_closed(line: RedisLine, moment: int, turns: int, patched: pytest.MonkeyPatch) -> list[Any]:
    """Ask the line, and close it before that command of a new connection, and so many turns of the loop earlier."""
    send, sent, closed = AbstractConnection.send_command, count(), list[asyncio.Future[None]]()

    async def closing(connection: AbstractConnection, *words: Any, **options: Any) -> None:
        if next(sent) == moment:
            closed.append(asyncio.ensure_future(line.close()))
            for _ in range(turns):
                await asyncio.sleep(0)
        await send(connection, *words, **options)

    patched.setattr(AbstractConnection, "send_command", closing)
    answers = await asyncio.gather(*(line.state() for _ in range(4)), return_exceptions=True)  # more than are kept idle
    await asyncio.gather(*closed)
    return answers


async def test_a_line_with_bytes_that_are_no_text_is_away() -> None:
    line = RedisLine(redis_url())
    async with driver.Redis.from_url(redis_url()) as other:
        try:
            await line.connect("spoilt")
            await other.hset(Keys("spoilt").state, "epoch", b"\xff")
            with pytest.raises(LineAway, match="another program has written to it"):
                await line.state()
        finally:
            await other.delete(Keys("spoilt").state)
            await line.close()


async def test_a_store_opens_without_its_server(tmp_path: Path) -> None:
    line = RedisLine("redis://127.0.0.1:1/0")
    with pytest.raises(LineAway):
        await line.connect("db")
    await line.close()
    store = make_store(f"sqlite:///{tmp_path}/jobs.db", redis_url="redis://127.0.0.1:1/0")
    await store.open()
    await store.close()


async def test_a_refused_subscription_leaves_no_connection_open() -> None:
    redis_url()
    with valkey.running() as server:
        server.ask("ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "-subscribe")
        line = RedisLine(server.url.replace("://", "://deaf:any@"))
        try:
            await line.connect("db")
            with pytest.raises(LineAway):
                await line.listen(lambda: None)
            await eventually(lambda: asyncio.to_thread(server.connections), lambda open_: open_ == 0)
        finally:
            await line.close()


async def test_a_store_that_is_refused_leaves_no_connection_open(tmp_path: Path) -> None:
    redis_url()
    with valkey.running("--maxmemory-policy", "allkeys-lru") as server:
        store = make_store(f"sqlite:///{tmp_path}/jobs.db", redis_url=server.url)
        with pytest.raises(BadSetting):
            await store.open()
        await eventually(lambda: asyncio.to_thread(server.connections), lambda open_: open_ == 0)


@pytest.mark.parametrize("url", ["", "redis", "http://host", "redis://", "redis:///0"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadSetting, match="valkey://"):
        RedisLine(url)


@pytest.mark.parametrize("url", ["valkey://h", "valkeys://h:6380/1", "rediss://u:p@h", "unix:///run/redis.sock"])
def test_valkey_and_sockets_have_addresses_too(url: str) -> None:
    RedisLine(url)
