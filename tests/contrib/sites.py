"""A FastAPI application for tests of `demora.contrib.fastapi`."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from demora import Demora
from demora.contrib.fastapi import later, lifespan


class Site:
    """A web application, its jobs, and a caller."""

    def __init__(self) -> None:
        self.jobs = Demora("sqlite://")
        self.events: list[str] = []
        self.web = FastAPI(lifespan=lifespan(self.jobs, inner=self.own))
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.web), base_url="http://shop")

    @asynccontextmanager
    async def own(self, web: FastAPI) -> AsyncIterator[dict[str, Any]]:
        self.events.append("opened")
        web.state.pool = "pool"
        yield {"region": "eu"}
        self.events.append("closed")

    def later(self, **options: Any) -> Callable[[Any], Any]:
        """Declare an endpoint at POST /reports that runs later."""
        return lambda endpoint: self.web.post("/reports", status_code=202)(later(self.jobs, "report", **options)(endpoint))

    async def post(self, path: str = "/reports", **headers: str) -> httpx.Response:
        return await self.http.post(
            path, json={"pages": 3}, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    async def ran(self, response: httpx.Response) -> httpx.Response:
        """Wait for the job of a 202 and return its result as its caller sees it."""
        assert response.status_code == 202, response.text
        await self.jobs.wait(response.json()["id"], "60s")
        return await self.http.get(response.json()["resultUrl"])
