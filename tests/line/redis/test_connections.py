"""Which servers are refused at the start, and with which words."""

import asyncio
from pathlib import Path

import pytest

from demora.engines import make_store
from demora.errors import BadSetting
from demora.line.port import LineAway
from demora.line.redis import RedisLine, connections
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
