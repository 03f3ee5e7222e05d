"""An application in memory and its HTTP face, without a socket between."""

from collections.abc import AsyncIterator

import httpx
import pytest

from demora import Demora
from demora.api import Api, make_api
from demora.metrics.service import ServiceMetrics
from demora.settings import Settings

BASE = "http://localhost:8080"


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app:
        yield app


@pytest.fixture
def api(app: Demora) -> Api:
    return make_api(app, Settings(database_url="sqlite://"), ServiceMetrics())


@pytest.fixture
async def http(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as http:
        yield http
