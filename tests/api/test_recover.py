"""`POST /api/v1/recover`: the jobs of a dead worker go back to the queue, without a worker."""

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.engines.sqlite import SqliteStore
from demora.settings import Settings
from demora.store.jobs import ClaimRequest
from tests.api.asking import JOBS, add
from tests.api.conftest import BASE
from tests.clock import TestClock

RECOVER = "/api/v1/recover"
LEASE = timedelta(seconds=30)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(clock: TestClock) -> SqliteStore:
    return SqliteStore(clock=clock)


@pytest.fixture
async def http(store: SqliteStore) -> AsyncIterator[httpx.AsyncClient]:
    async with Demora(store=store) as app:
        api = make_api(app, Settings(database_url="sqlite://"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as http:
            yield http


async def test_a_lapsed_lease_is_settled(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    job = await add(http, "report.build")
    await store.claim(ClaimRequest("dead", 1, lease=LEASE))
    clock.turn(31)
    answer = await http.post(RECOVER)
    assert answer.json() == {"recovered": [{"id": job["id"], "workerId": "dead", "status": "RETRYING"}]}
    assert (await http.get(f"{JOBS}/{job['id']}")).json()["status"] == "RETRYING"


async def test_a_lease_that_holds_is_left_alone(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    await add(http, "report.build")
    await store.claim(ClaimRequest("alive", 1, lease=LEASE))
    clock.turn(29)
    assert (await http.post(RECOVER)).json() == {"recovered": []}
