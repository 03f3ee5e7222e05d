"""Stores with a line, on servers that can be taken away."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from demora.engines.sqlite import SqliteStore
from demora.line import LinedStore
from demora.line import maintainer as maintaining
from demora.line.redis import RedisLine
from tests.copies import jobs_file
from tests.servers import valkey
from tests.setups import redis_url

Open = Callable[..., Awaitable[LinedStore]]


@pytest.fixture
def server() -> Iterator[valkey.Server]:
    """A Valkey of one's own."""
    redis_url()
    with valkey.running() as server:
        yield server


@pytest.fixture
async def open_store(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens stores on one file, with their line on a server."""
    async with AsyncExitStack() as stack:

        async def open_one(url: str, **options: object) -> LinedStore:
            return await stack.enter_async_context(opened(jobs_file(tmp_path), url))

        yield open_one


@asynccontextmanager
async def opened(path: Path, url: str) -> AsyncIterator[LinedStore]:
    store = LinedStore(SqliteStore(path), lambda: RedisLine(url))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check lines more often than usual."""
    monkeypatch.setattr(maintaining, "TICK", 0.05)
