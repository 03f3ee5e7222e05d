"""A dashboard on an application in memory, and a browser's habits without a browser."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.client.client import Client
from demora.core.job import Job
from demora.core.workers import WorkerRecord
from demora.dashboard import sessions, visit
from demora.dashboard.asgi import service_dashboard
from demora.runtime.front import Front
from demora.settings import Settings
from demora.worker import Worker

BASE = "http://localhost:8080"


class Browser:
    """Fetches pages, keeps cookies, and sends forms as the script of a page does: with its token and its origin."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers={"accept": "text/html", **headers})

    async def live(self, path: str) -> httpx.Response:
        return await self.get(path, **{"x-demora-part": "live"})

    async def act(self, path: str, **form: str) -> httpx.Response:
        """Send a form of the overview, which every visitor may see."""
        page = (await self.get("/dashboard/system")).text
        token = re.search(r'"X-Demora-Token": "(\w+)"', page)
        assert token, page[:500]
        return await self.post(path, token[1], **form)

    async def post(self, path: str, token: str, **form: str) -> httpx.Response:
        headers = {"x-demora-token": token.encode(), "sec-fetch-site": b"same-origin", "hx-request": b"true"}
        return await self.http.post(path, data=form, headers=headers)

    async def sign_in(self, key: str, there: str = "/dashboard") -> httpx.Response:
        page = await self.get(f"/dashboard/sign-in?next={there}")
        token = re.search(r'name="token" value="(\w+)"', page.text)
        assert token
        data, headers = {"key": key, "token": token[1]}, {"sec-fetch-site": "same-origin"}
        return await self.http.post(f"/dashboard/sign-in?next={there}", data=data, headers=headers)


def said(answer: httpx.Response) -> dict[str, Any]:
    """Return the event that an action sends to the script of its page."""
    events: dict[str, Any] = json.loads(answer.headers["hx-trigger"])
    [(_, detail)] = events.items()
    return detail


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of keys and sessions take effect at once."""
    monkeypatch.setattr(sessions, "FRESH", 0.0)


@pytest.fixture(autouse=True)
def read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits for all that it shows, also on a machine that stands still for a while."""
    monkeypatch.setattr(visit, "FIRST_PATIENCE", 60.0)


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app:
        yield app


@pytest.fixture
async def client(app: Demora) -> Client:
    return await app.open()


@pytest.fixture
def settings() -> Settings:
    return Settings(database_url="sqlite://")


@pytest.fixture
async def browser(app: Demora, settings: Settings) -> AsyncIterator[Browser]:
    front = Front(make_api(app, settings), service_dashboard(app, settings))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        yield Browser(http)


async def register(client: Client, **changes: Any) -> None:
    """Register a live worker that knows the demo types."""
    types = ("demo.echo", "demo.sleep", "demo.fail")
    usual: dict[str, Any] = {"id": "ann", "host": "here", "pid": 1, "slots": 4, "types": types}
    await client.store.heartbeat(WorkerRecord(**{**usual, **changes}))


async def hold(client: Client, queue: str, count: int) -> list[Job]:
    """Add jobs that the pace of their queue holds, and wait until they are due."""
    jobs = await client.enqueue_many([("demo.echo", {}, {"queue": queue, "delay": "1ms"}) for _ in range(count)])
    while True:
        pacing = await client.pacing(queue)
        if pacing is not None and pacing.held >= count:
            return jobs


async def carried_out(app: Demora, answer: httpx.Response) -> None:
    """Run a worker until the action has ended that a form has started."""
    id, worker = urlsplit(answer.headers["hx-redirect"]).path.rpartition("/")[2], Worker(app)
    working = asyncio.ensure_future(worker.run())
    try:
        await (await app.open()).wait(id, "20s")
    finally:
        worker.stop()
        await working
