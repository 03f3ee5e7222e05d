"""`GET /api/v1/jobs/{id}/wait`: until the end, until the time is up, or until somebody leaves."""

import asyncio
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import Api
from tests.api.asking import JOBS, add, problem


class Caller:
    """A caller that can hang up, for one request by hand."""

    def __init__(self, api: Api, path: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.listening, self.gone = asyncio.Event(), asyncio.Event()
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")]}
        self.task = asyncio.ensure_future(api(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.listening.set()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(dict(message))


async def test_a_wait_is_answered_when_the_job_ends(http: httpx.AsyncClient, app: Demora) -> None:
    async with app.worker():
        job = await add(http, payload={"hi": 1})
        answer = await http.get(f"{JOBS}/{job['id']}/wait?timeout=60000")
    assert (answer.status_code, answer.json()["status"], answer.json()["result"]) == (200, "COMPLETED", {"hi": 1})


@pytest.mark.parametrize("timeout", [0, 20])
async def test_a_wait_is_answered_with_the_job_as_it_is_when_the_time_is_up(http: httpx.AsyncClient, timeout: int) -> None:
    job = await add(http)
    answer = await http.get(f"{JOBS}/{job['id']}/wait?timeout={timeout}")
    assert (answer.status_code, answer.json()) == (200, job)


@pytest.mark.parametrize("timeout", ["-1", "60001", "5s", "1.5", "", "9" * 40])
async def test_a_wait_is_0_to_60000_milliseconds(http: httpx.AsyncClient, timeout: str) -> None:
    job = await add(http)
    problem(await http.get(f"{JOBS}/{job['id']}/wait?timeout={timeout}"), 422, "timeout")


async def test_a_wait_ends_when_the_service_stops(http: httpx.AsyncClient, api: Api) -> None:
    job = await add(http)
    caller = Caller(api, f"{JOBS}/{job['id']}/wait")
    await caller.listening.wait()
    api.stop()
    await caller.task
    assert [message.get("status") for message in caller.sent] == [200, None]


async def test_a_wait_ends_when_the_caller_hangs_up(http: httpx.AsyncClient, api: Api) -> None:
    job = await add(http)
    caller = Caller(api, f"{JOBS}/{job['id']}/wait")
    await caller.listening.wait()
    caller.gone.set()
    await caller.task
    assert caller.sent == []
