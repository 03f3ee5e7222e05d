"""Every page and the main actions on every set-up: SQLite and PostgreSQL, each with and without the line."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.dashboard.asgi import service_dashboard
from demora.runtime.front import Front
from demora.settings import Settings
from demora.system.clock import SystemClock
from tests.dashboard.conftest import BASE, Browser, carried_out, said
from tests.dashboard.lively import make_lively
from tests.setups import SETUPS

PAGES = ("", "?span=day", "?span=week", "/jobs", "/jobs?q=status:waiting", "/jobs?q=status:failed+error:KeyError")
PAGES += (
    "/queues",
    "/queues/newsletter",
    "/schedules",
    "/failures",
    "/system",
    "/actions/choose?q=queue:mail",
    "/actions/ask/retry?q=status:failed",
)


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.name)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Demora]:
    async with Demora(store=request.param.make(tmp_path, SystemClock())) as app:
        yield app


async def test_pages_and_actions(app: Demora) -> None:
    client = await app.open()
    named = await make_lively(client)
    front = Front(make_api(app, Settings()), service_dashboard(app, Settings()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        browser = Browser(http)
        for path in (*PAGES, *(f"/jobs/{id}" for id in named.values())):
            assert (await browser.get(f"/dashboard{path}")).status_code == 200, path
        rows = ",".join(named.values())
        assert (await browser.live(f"/dashboard/jobs?rows={rows}")).text.count('<tr class="row"') == len(named)
        cancelled = said(await browser.act(f"/dashboard/jobs/{named['scheduled']}/cancel"))
        assert (await browser.act(cancelled["undo"])).status_code == 204
        search = "status:failed type:invoice.send error:KeyError"
        await carried_out(app, await browser.act("/dashboard/actions/retry", q=search))
        assert (await client.count(search)).jobs == 0
        made = await client.keys.create("ops", ["admin"])
        assert (await browser.get("/dashboard")).status_code == 401
        assert (await browser.sign_in(made.text)).status_code == 303
        assert (await browser.get("/dashboard/system")).status_code == 200
