"""Stores with a line and without nets: nothing heals a fault of the line before a test sees it, and a verb can be held at
any of its steps."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from demora.engines.sqlite import SqliteStore
from demora.line import LinedStore, SqlStore, claiming, reconcile
from demora.line import maintainer as maintaining
from demora.line.redis import RedisLine, connections
from tests.clock import TestClock
from tests.copies import jobs_file
from tests.setups import postgres_store, redis_url

PATIENCE = 60.0  # seconds
Deed = Callable[[], Awaitable[object]]
ENGINES: dict[str, Callable[[Path, TestClock], SqlStore]] = {
    "sqlite": lambda folder, clock: SqliteStore(jobs_file(folder), clock=clock),
    "postgres": postgres_store,
}
# The steps of a verb: what it asks the database about the line, and what it asks the line.
FEED = ("position", "walk", "moved", "row_places", "claim_by_ids")
LINE = ("put", "remove", "take", "done", "checkpoint")


def no_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what would heal a fault, except for the ticks, which `bare_store` does without. No claim asks SQL alone, no
    job is handed out twice, and a comparison looks once."""
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", math.inf)
    monkeypatch.setattr(maintaining, "STALE_AFTER", 10**15)
    monkeypatch.setattr(reconcile, "LOOKS", 1)
    patient(monkeypatch)


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for an answer of the line: a busy computer is no fault of it."""
    monkeypatch.setattr(connections, "TIMEOUT", PATIENCE)
    for name in ("socket_timeout", "socket_connect_timeout"):
        monkeypatch.setitem(connections._OPTIONS, name, PATIENCE)


def bare_store(inner: SqlStore) -> LinedStore:
    url = redis_url()
    return LinedStore(inner, lambda: RedisLine(url), ticks=False)


@asynccontextmanager
async def opened(engine: str, folder: Path, clock: TestClock, number: int) -> AsyncIterator[list[LinedStore]]:
    """So many stores on one database, as so many processes have them."""
    stores = [bare_store(ENGINES[engine](folder, clock)) for _ in range(number)]
    try:
        for store in stores:
            await store.open()
        yield stores
    finally:
        for store in stores:
            await store.close()


async def reconnect(store: LinedStore) -> None:
    """Do what the next tick does in a process that lost its line."""
    await (await store._maintainer())._connect()


async def beside(store: LinedStore, verb: Deed, deed: Deed, *, at: int, steps: Sequence[str] = (*FEED, *LINE)) -> bool:
    """Run a verb of a store, and the deed of another process at a point of it: before the first of its steps, after it,
    before the second, and so on. False, and no deed, if the verb has no such point."""
    held = _Held(store, (await store._maintainer()).line, steps, at)
    running = asyncio.ensure_future(verb())
    reached = asyncio.ensure_future(held.reached.wait())
    await asyncio.wait([running, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    if held.reached.is_set():
        await deed()
    held.go_on()
    await running
    return held.reached.is_set()


class _Held:
    """Holds what passes a point."""

    def __init__(self, store: LinedStore, line: Any, steps: Sequence[str], at: int) -> None:
        self.reached, self._go, self._left = asyncio.Event(), asyncio.Event(), at
        self._patched = [
            (part, name) for part, names in ((store.inner.line_feed, FEED), (line, LINE)) for name in names if name in steps
        ]
        for part, name in self._patched:
            setattr(part, name, self._passing(getattr(part, name)))

    def _passing(self, step: Any) -> Any:
        async def passed(*asked: Any, **more: Any) -> Any:
            await self._pass()
            answer = await step(*asked, **more)
            await self._pass()
            return answer

        return passed

    async def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self._go.wait()

    def go_on(self) -> None:
        self._go.set()
        for part, name in self._patched:
            delattr(part, name)  # what the class says stands again
