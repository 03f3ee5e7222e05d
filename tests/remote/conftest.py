"""A service on a database of each of the four set-ups, with a clock that tests turn, and remote workers of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.settings import Settings
from demora.store.store import Store
from tests.api.conftest import BASE
from tests.clock import TestClock
from tests.setups import SETUPS, Setup

FOUR = [setup for setup in SETUPS if setup.name in ("sqlite-file", "postgres", "lined-sqlite", "lined-postgres")]
WORKERS = "/api/v1/workers"


class Ann:
    """A remote worker, as its program sees the service."""

    def __init__(self, http: httpx.AsyncClient, id: str, headers: dict[str, str]) -> None:
        self.http, self.id, self.headers = http, id, headers

    async def ask(self, verb: str, **body: Any) -> Any:
        answer = await self.http.post(f"{WORKERS}/{self.id}/{verb}", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def claim(self, limit: int = 100, **body: Any) -> list[dict[str, Any]]:
        return (await self.ask("claim", limit=limit, **body))["jobs"]

    async def claim_one(self, **body: Any) -> dict[str, Any]:
        [job] = await self.claim(1, **body)
        return job

    async def renew(self, *jobs: dict[str, Any], **report: Any) -> tuple[list[str], list[str]]:
        """The ids of the jobs that are lost, and of those that are to be cancelled."""
        heard = await self.ask("renew", jobs=[{"id": job["id"], "token": job["token"], **report} for job in jobs])
        return [one["id"] for one in heard["lost"]], [one["id"] for one in heard["cancelled"]]

    async def settle(self, job: dict[str, Any], outcome: str = "completed", **more: Any) -> str | None:
        body = {"id": job["id"], "token": job["token"], "outcome": outcome, **more}
        [settled] = (await self.ask("settle", jobs=[body]))["jobs"]
        assert settled["id"] == job["id"]
        return settled["status"]

    async def leave(self) -> int:
        return (await self.http.delete(f"{WORKERS}/{self.id}", headers=self.headers)).status_code


async def registered(http: httpx.AsyncClient, *, key: str | None = None, **body: Any) -> Ann:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    asked = {"name": "ann", "types": ["a"], "slots": 4, **body}
    answer = await http.post(WORKERS, json=asked, headers=headers)
    assert answer.status_code == 201, answer.text
    return Ann(http, answer.json()["workerId"], headers)


@pytest.fixture(params=FOUR, ids=lambda setup: setup.name)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> Store:
    setup: Setup = request.param
    return setup.make(tmp_path, clock)


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Demora]:
    async with Demora(store=store) as app:
        yield app


@pytest.fixture
async def http(app: Demora) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(app, Settings()))
    async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as http:
        yield http


@pytest.fixture
async def ann(http: httpx.AsyncClient) -> Ann:
    return await registered(http)
