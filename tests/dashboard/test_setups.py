"""Every page and the main actions on every set-up: SQLite and PostgreSQL, each with and without the line."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.core.job import Priority
from demora.dashboard.asgi import service_dashboard
from demora.engines.sqlite.engine import SqliteStore
from demora.line import reconcile
from demora.runtime.front import Front
from demora.settings import Settings
from demora.store.line_feed import Entry, Place
from demora.system.clock import SystemClock
from tests.dashboard.conftest import BASE, Browser, carried_out, said
from tests.dashboard.lively import make_lively
from tests.setups import SETUPS, lined_store

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


async def test_the_line_is_compared_in_the_words_of_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job is missing in the line, one is in it though it has ended, and one is at a wrong place."""
    monkeypatch.setattr(reconcile, "RECHECK", 0.0)
    store = lined_store(SqliteStore())
    async with Demora(store=store) as app:
        front = Front(make_api(app, Settings()), service_dashboard(app, Settings()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
            browser = Browser(http)
            ended, missing, misplaced = [(await app.enqueue("a", queue=queue, delay="60s")).id for queue in "abc"]
            assert "3 jobs in it" in said(await browser.act("/dashboard/system/line/compare"))["words"]
            await app.cancel(ended)
            line = (await store._maintainer()).line
            await line.remove([Entry(missing, "b")])
            await line.put([Place(id, "a", 0, Priority.LOW, 2**40) for id in (ended, misplaced)], now=0)
            words = said(await browser.act("/dashboard/system/line/compare"))["words"]
    assert "1 missing, 1 surplus, 1 misplaced" in words
