"""Wake-ups by NOTIFY: across stores, after the connection broke, and without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore, notifier
from demora.store.jobs import Topic
from tests.builders import add_one, seconds
from tests.facts import eventually
from tests.servers import proxy as proxies

SOON = 3.0  # seconds: well before the safety net


@asynccontextmanager
async def opened(url: str, schema: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, PostgresOptions(**{"schema": schema, "connections": 2, **options}))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(autouse=True)
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "SAFETY", 60.0)


async def test_a_lost_listener_connects_again_and_wakes_its_waiters(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "PAUSE", 0.05)
    async with proxies.before(url) as (proxy, through), opened(through, schema) as one, opened(url, schema) as other:
        with one.subscribe(Topic.READY) as place:
            await one.queues()
            assert one._notifier.reachable
            place.clear()
            proxy.cut_all()
            await asyncio.wait_for(place.wait(None), SOON)  # whoever cannot hear must look
            await eventually(lambda: _is(one), within=SOON)
            await asyncio.wait_for(place.wait(None), SOON)  # notifications may have been missed
            place.clear()
            await add_one(other)
            await asyncio.wait_for(place.wait(None), SOON)


async def _is(store: PostgresStore) -> bool:
    return store._notifier.reachable


async def test_a_store_that_only_adds_listens_to_nothing(url: str, schema: str) -> None:
    async with opened(url, schema) as store:
        await add_one(store)
        assert store._notifier._listening is None


@pytest.mark.parametrize("options", [{"notify": False}, {"pooler": True}], ids=["off", "pooler"])
async def test_without_listen_a_waiter_looks_four_times_a_second(url: str, schema: str, options: dict[str, Any]) -> None:
    async with opened(url, schema, **options) as store:
        with store.subscribe(Topic.READY) as place:
            place.clear()
            started = asyncio.get_running_loop().time()
            await asyncio.wait_for(place.wait(None), SOON)
            assert asyncio.get_running_loop().time() - started >= notifier.DEAF_LOOK * 0.9


async def test_behind_a_pooler_another_url_can_be_listened_on(url: str, schema: str) -> None:
    async with opened(url, schema, pooler=True, listen_url=url) as one, opened(url, schema, pooler=True) as other:
        with one.subscribe(Topic.READY) as place:
            await one.queues()
            place.clear()
            await add_one(other)
            await asyncio.wait_for(place.wait(None), SOON)
            assert one._notifier.reachable


async def test_rings_gather_while_one_is_under_way(url: str, schema: str) -> None:
    heard: list[str] = []
    connection = await asyncpg.connect(url)
    await connection.add_listener(f"demora_{schema}_ready", lambda *heard_of: heard.append(heard_of[3]))
    async with opened(url, schema) as store:
        await asyncio.gather(*(add_one(store) for _ in range(500)))
    await eventually(lambda: _any(heard), within=SOON)
    await connection.fetchval("select 1")
    assert 1 <= len(heard) <= 20
    await connection.close()


async def _any(heard: list[str]) -> int:
    return len(heard)


async def test_a_later_job_rings_nobody(url: str, schema: str) -> None:
    heard: list[str] = []
    async with opened(url, schema) as store:
        await add_one(store, delay=seconds(60))
        await eventually(lambda: _quiet(store))
        connection = await asyncpg.connect(url)
        await connection.add_listener(f"demora_{schema}_ready", lambda *heard_of: heard.append(heard_of[3]))
        await add_one(store, delay=seconds(61))
        await eventually(lambda: _quiet(store))
        await connection.fetchval("select 1")
        await connection.close()
    assert heard == []


async def _quiet(store: PostgresStore) -> bool:
    return store._notifier._sending is None


async def test_who_cannot_hear_is_not_woken_by_every_try_to_listen(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "PAUSE", 0.001)
    async with opened(url, schema, listen_url="postgresql://127.0.0.1:1/nobody") as store:
        with store.subscribe(Topic.READY) as place:
            await store.queues()
            assert store.diagnostics.notes() == (notifier.UNHEARD,)
            place.clear()
            assert [await place.wait(0.05) for _ in range(3)] == [False] * 3


async def test_a_defect_does_not_end_the_listener(url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "PAUSE", 0.01)
    async with opened(url, schema) as one, opened(url, schema) as other:
        clock, failed = one._notifier._clock, asyncio.Event()

        def failing() -> int | None:
            one._notifier._clock = clock
            failed.set()
            raise AttributeError("a defect of the driver")

        one._notifier._clock = failing
        with one.subscribe(Topic.READY) as place:
            await asyncio.wait_for(failed.wait(), SOON)
            await eventually(lambda: _is(one), within=SOON)
            await asyncio.wait_for(place.wait(None), SOON)
            place.clear()
            await add_one(other)
            await asyncio.wait_for(place.wait(None), SOON)
