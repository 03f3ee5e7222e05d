"""Searches that read every job keep nothing else waiting: some are held in the middle, and others ask."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.core.filters import JobFilter
from demora.engines.postgres import PostgresOptions, PostgresStore
from demora.engines.sql import searching
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection import connections
from demora.errors import SearchTooSlow, TooManySearches
from demora.settings import Settings
from demora.store.jobs import Query, QueueQuery
from demora.store.store import Store
from tests.builders import add_ids, new_job
from tests.setups import postgres_url

AT_ONCE = 3
NONE, SOME = JobFilter(text="none"), JobFilter(tags=("some",))
SOON = timedelta(milliseconds=100)
LONG = timedelta(seconds=60)
AFTER = 10.0  # seconds that an answer may take which waits for nothing
Holding = Callable[[], AbstractAsyncContextManager[None]]


class Gate:
    """Holds every statement of a SQLite connection that takes more than a few thousand steps, while it is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    def connect(self, path: Path | None) -> apsw.Connection:
        db = connections.connect(path)
        db.set_progress_handler(self._pass, 5000)
        return db

    def _pass(self) -> bool:
        self._open.wait(AFTER * 4)
        return False

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[tuple[Store, Holding]]:
    gate = Gate()
    store = SqliteStore(folder / "jobs.db", connect=gate.connect)
    await store.open()
    try:
        yield store, gate.holding
    finally:
        await store.close()


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[tuple[Store, Holding]]:
    url, schema = postgres_url(), f"t_{secrets.token_hex(6)}"
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=1))
    await store.open()

    @asynccontextmanager
    async def holding() -> AsyncIterator[None]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute(f"lock table {schema}.jobs in access exclusive mode")
                yield
        finally:
            await connection.close()

    try:
        yield store, holding
    finally:
        await store.close()


@pytest.fixture(params=[sqlite, postgres])
async def held(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Holding]]:
    """A store with some jobs, and what holds its searches."""
    async with request.param(tmp_path) as (store, holding):
        await store.add([new_job(tags=("some",)) for _ in range(1000)])
        yield store, holding


async def test_a_key_and_the_workers_are_found_while_searches_are_held(held: tuple[Store, Holding]) -> None:
    store, holding = held
    async with holding():
        searches = [asyncio.ensure_future(store.find(Query(NONE))) for _ in range(10)]
        for _ in range(5):
            async with asyncio.timeout(AFTER):
                assert (await store.api_keys.find("nobody's")).key is None
                assert await store.workers() == []
        assert not any(search.done() for search in searches)
    assert [page.jobs for page in await asyncio.gather(*searches)] == [[]] * 10


async def test_a_search_is_stopped_after_its_limit_of_time(held: tuple[Store, Holding]) -> None:
    store, holding = held
    searching: list[Awaitable[Any]] = []
    async with holding():
        for _ in range(AT_ONCE - 1):
            searching.append(asyncio.ensure_future(store.find(Query(NONE, within=SOON))))
        searching.append(asyncio.ensure_future(store.queues(QueueQuery(within=SOON))))
        await asyncio.wait(searching, timeout=1)  # on SQLite a held statement hears of it at its next step
    for search in searching:
        with pytest.raises(SearchTooSlow, match=r"stopped after 0.1 s: .* Add a status"):
            await search
    assert (await store.find(Query(SOME, limit=1, within=LONG))).jobs  # the connections are good for more
    assert len(await store.queues(QueueQuery(within=LONG))) == 1


async def test_few_searches_run_at_once_and_others_are_refused_soon(
    held: tuple[Store, Holding], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, holding = held
    monkeypatch.setattr(searching, "TURN_LIMIT", 0.05)
    async with holding():
        running = [asyncio.ensure_future(store.find(Query(NONE, within=LONG))) for _ in range(AT_ONCE)]
        await asyncio.wait(running, timeout=0.05)  # so that it is their turn
        for _ in range(3):
            with pytest.raises(TooManySearches, match="3 searches of jobs are running"):
                await store.find(Query(NONE, within=LONG))
        waiting = asyncio.ensure_future(store.find(Query(NONE)))  # without a limit of time it waits for its turn
        assert not any(search.done() for search in (*running, waiting))
    assert [page.jobs for page in await asyncio.gather(*running, waiting)] == [[]] * (AT_ONCE + 1)


async def test_a_search_whose_caller_is_gone_makes_room_for_others(held: tuple[Store, Holding]) -> None:
    store, holding = held
    async with holding():
        running = [asyncio.ensure_future(store.find(Query(NONE))) for _ in range(AT_ONCE)]
        await asyncio.wait(running, timeout=0.05)
        for search in running:
            search.cancel()
    await asyncio.wait(running)
    assert (await store.find(Query(SOME, limit=1, within=LONG))).jobs


async def test_a_store_closes_while_searches_run(held: tuple[Store, Holding]) -> None:
    store, holding = held
    async with holding():
        running = [asyncio.ensure_future(store.find(Query(NONE))) for _ in range(AT_ONCE + 1)]
        await asyncio.wait(running, timeout=0.05)
    async with asyncio.timeout(AFTER * 2):
        await store.close()
        await asyncio.wait(running)


async def test_health_and_callers_with_keys_are_answered_while_searches_are_held(
    held: tuple[Store, Holding], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, holding = held
    monkeypatch.setattr(searching, "TURN_LIMIT", 0.05)
    monkeypatch.setattr("demora.api.operations.jobs.SEARCH_LIMIT", LONG)
    app = Demora(store=store)
    client = await app.open()
    keys = [await client.keys.create(f"key {number}", ["admin"]) for number in range(6)]
    transport = httpx.ASGITransport(make_api(app, Settings(database_url="sqlite://")))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

        async def ask(path: str, key: int) -> httpx.Response:
            return await http.get(path, headers={"authorization": f"Bearer {keys[key].text}"})

        async with holding():
            asked = [asyncio.ensure_future(ask("/api/v1/jobs?text=none", 0)) for _ in range(AT_ONCE + 1)]
            [first], searches = await asyncio.wait(asked, timeout=AFTER, return_when=asyncio.FIRST_COMPLETED)
            refused = first.result()
            assert refused.status_code == 503
            assert (refused.headers["retry-after"], refused.json()["title"]) == ("2", "Too many searches")
            for key in range(1, 6):  # each is looked up
                async with asyncio.timeout(AFTER):
                    assert (await ask("/api/v1/workers", key)).status_code == 200
                    assert (await http.get("/health/ready")).json()["status"] == "degraded"
                    assert (await http.get("/api/v1/workers")).status_code == 401
            assert not any(search.done() for search in searches)
        assert {search.status_code for search in await asyncio.gather(*searches)} == {200}


async def test_a_search_that_is_too_slow_says_what_to_add(
    held: tuple[Store, Holding], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, holding = held
    monkeypatch.setattr("demora.api.operations.jobs.SEARCH_LIMIT", SOON)
    transport = httpx.ASGITransport(make_api(Demora(store=store), Settings(database_url="sqlite://")))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        async with holding():
            asked = asyncio.ensure_future(http.get("/api/v1/jobs?text=none"))
            await asyncio.wait([asked], timeout=1)
        answer = await asked
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:demora:problem:search-too-slow")
    assert "Add a status" in answer.json()["detail"]


async def test_thousands_of_queues_are_never_answered_at_once(tmp_path: Path) -> None:
    async with sqlite(tmp_path) as (store, _):
        await add_ids(store, *[{"queue": f"q{number:06}"} for number in range(20_000)])
        transport = httpx.ASGITransport(make_api(Demora(store=store), Settings(database_url="sqlite://")))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            page = (await http.get("/api/v1/queues")).json()
            assert ([queue["name"] for queue in page["queues"]][::199], page["nextCursor"]) == (
                ["q000000", "q000199"],
                "q000199",
            )
            last = (await http.get("/api/v1/queues?cursor=q019990&limit=200")).json()
            assert (len(last["queues"]), last["nextCursor"]) == (9, None)
            assert (await http.get("/api/v1/queues/q012345")).json()["ready"] == 1
