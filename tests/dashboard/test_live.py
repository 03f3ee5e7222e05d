"""Pages that live, in a real Chromium: one tab listens for all, a lost stream is shown, and rows stay where they are."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from demora import Demora
from demora.api import make_api
from demora.client.client import Client
from demora.core.access import Scope
from demora.core.verdict import Raised, Succeeded
from demora.dashboard import dashboard
from demora.dashboard.asgi import Dashboard, service_dashboard
from demora.runtime.front import Front
from demora.settings import Settings
from tests.builders import claim_one, settle
from tests.dashboard.chromium import chromium, serving, watched
from tests.dashboard.conftest import register
from tests.facts import eventually

pytestmark = [pytest.mark.slow]

TABS = 10
NOT_LIVE = re.compile(r"^Not live since \d\d:\d\d$")
REFUSED = ("net::ERR_", "Failed to fetch")
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def board(app: Demora, settings: Settings) -> Dashboard:
    return service_dashboard(app, settings)


@pytest.fixture
async def site(app: Demora, settings: Settings, board: Dashboard) -> AsyncIterator[str]:
    async with serving(Front(make_api(app, settings), board)) as address:
        yield address


@pytest.fixture
async def engine() -> AsyncIterator[Chromium]:
    async with chromium() as found:
        yield found


async def streams(board: Dashboard, count: int) -> None:
    async def look() -> int:
        return len(board.streams)

    await eventually(look, lambda seen: seen == count)


async def test_ten_tabs_share_one_stream_and_stay_usable(
    engine: Chromium, site: str, client: Client, board: Dashboard
) -> None:
    await client.enqueue("demo.echo", delay="1h")
    async with watched(engine) as (context, first):
        tabs = [first, *[await context.new_page() for _ in range(TABS - 1)]]
        for tab in tabs:
            await tab.goto(f"{site}/dashboard/jobs")
        await streams(board, 1)
        await client.enqueue("demo.echo", delay="1h")
        for tab in tabs:
            await expect(tab.get_by_text("1 new")).to_be_visible()
        assert len(board.streams) == 1
        await tabs[-1].goto(f"{site}/dashboard/queues")  # there is a free connection
        await expect(tabs[-1].locator("h1")).to_have_text("Queues")
        await first.close()  # it was the one that listened
        await streams(board, 1)
        await client.enqueue("demo.echo", delay="1h")
        for tab in tabs[1:-1]:
            await expect(tab.get_by_text("2 new")).to_be_visible()


async def test_a_hidden_tab_does_not_listen(engine: Chromium, site: str, client: Client, board: Dashboard) -> None:
    await client.enqueue("demo.echo", delay="1h")
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await streams(board, 1)
        await page.evaluate(HIDE, True)
        await streams(board, 0)
        await client.enqueue("demo.echo", delay="1h")
        await page.evaluate(HIDE, False)
        await expect(page.get_by_text("1 new")).to_be_visible()
        await streams(board, 1)
        await page.get_by_role("switch").click()
        await expect(page.get_by_role("switch")).to_have_text("Not live")
        await streams(board, 0)


async def test_a_lost_stream_is_shown_and_opened_again(
    engine: Chromium, app: Demora, client: Client, settings: Settings
) -> None:
    await client.enqueue("demo.echo", delay="1h")
    async with watched(engine, expected=REFUSED) as (context, page):
        other = await context.new_page()
        async with _site(app, settings) as (site, board):
            for tab in (page, other):
                await tab.goto(f"{site}/dashboard/jobs")
            await streams(board, 1)
            await expect(other.get_by_role("switch")).to_have_text("Live")
        for tab in (page, other):
            await expect(tab.get_by_role("switch")).to_have_text(NOT_LIVE, timeout=20_000)
        await client.enqueue("demo.echo", delay="1h")
        async with _site(app, settings, port=urlsplit(site).port or 0):
            for tab in (page, other):
                await expect(tab.get_by_role("switch")).to_have_text("Live", timeout=40_000)
                await expect(tab.get_by_text("1 new")).to_be_visible()


@asynccontextmanager
async def _site(app: Demora, settings: Settings, port: int = 0) -> AsyncIterator[tuple[str, Dashboard]]:
    board = service_dashboard(app, settings)
    async with serving(Front(make_api(app, settings), board), port) as site:
        yield site, board


async def test_a_page_leads_to_the_sign_in_when_its_session_ends(
    engine: Chromium, site: str, client: Client, board: Dashboard
) -> None:
    made = await client.keys.create("ann", ["admin"])
    async with watched(engine, expected=("401 (Unauthorized)",)) as (_, page):
        await page.goto(f"{site}/dashboard/jobs")
        await page.get_by_label("API key").fill(made.text)
        await page.get_by_role("button").click()
        await expect(page.locator("h1")).to_have_text("Jobs")
        await streams(board, 1)
        await client.keys.revoke(made.key.id)
        await page.wait_for_url("**/dashboard/sign-in?next=*")


async def test_a_browser_without_locks_polls(engine: Chromium, site: str, client: Client, board: Dashboard) -> None:
    await client.enqueue("demo.echo", delay="1h")
    async with watched(engine) as (context, page):
        await context.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
        await page.goto(f"{site}/dashboard/jobs")
        await client.enqueue("demo.echo", delay="1h")
        await expect(page.get_by_text("1 new")).to_be_visible(timeout=20_000)
        assert len(board.streams) == 0


async def test_a_job_that_becomes_due_is_shown_without_a_change(engine: Chromium, site: str, client: Client) -> None:
    job = await client.enqueue("demo.echo", delay="5s")
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/jobs/{job.id}")
        await expect(page.locator(".head .state")).to_have_text("Scheduled")
        await expect(page.locator(".head .state")).to_have_text("Ready", timeout=12_000)  # sooner than the slow refresh


async def test_a_mounted_dashboard_lives_too(
    engine: Chromium, app: Demora, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demora.dashboard.asgi.MOUNTED_LIFE", 1.5)
    await client.enqueue("demo.echo", delay="1h")
    board = dashboard(app, access=lambda _: Scope.OPERATE)
    async with serving(Starlette(routes=[Mount("/a/b", board)])) as site, watched(engine) as (_, page):
        await page.goto(f"{site}/a/b/jobs")
        await streams(board, 1)
        for n in (1, 2, 3):  # also after the stream has ended and was opened again
            await client.enqueue("demo.echo", delay="1h")
            await expect(page.get_by_text(f"{n} new")).to_be_visible()
        await expect(page.get_by_role("switch")).to_have_text("Live")


async def test_running_jobs_never_move_under_the_pointer(engine: Chromium, site: str, client: Client) -> None:
    await register(client)

    async def start(name: str) -> object:
        await client.enqueue("demo.echo", name=name)
        return await claim_one(client.store, worker="ann", lease=timedelta(hours=1))

    jobs = [await start(f"job {n}") for n in range(4)]
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard")
        rows = page.locator("tr[id^=running-]")
        await expect(rows).to_have_count(4)
        before = [await row.get_attribute("id") for row in await rows.all()]
        await rows.nth(2).hover()
        place = await rows.nth(2).bounding_box()
        for job in jobs[:2]:
            await settle(client.store, job, Succeeded(b"{}"))  # type: ignore[arg-type]
        await start("newer")
        await expect(page.get_by_text("newer")).to_be_visible()
        await expect(page.locator("tr[data-gone]")).to_have_count(1)
        after = [await row.get_attribute("id") for row in await rows.all()]
        assert len(after) == 4
        assert after[2] == before[2]
        assert await rows.nth(2).bounding_box() == place
        await page.mouse.move(5, 5)
        await start("newest")
        await expect(page.get_by_text("newest")).to_be_visible()
        await expect(page.locator("tr[data-gone]")).to_have_count(0)


async def test_groups_of_failures_keep_their_places(engine: Chromium, site: str, client: Client) -> None:
    async def fail(error: str) -> None:
        await client.enqueue("demo.fail", max_retries=0)
        await settle(client.store, await claim_one(client.store), Raised(error, None))

    for error in ("Timeout: a", "Timeout: a", "KeyError: b"):
        await fail(error)
    async with watched(engine) as (_, page):
        await page.goto(f"{site}/dashboard/failures")
        rows = page.locator("tr[id^=group-]")
        await expect(rows.first).to_contain_text("Timeout")
        for _ in range(3):
            await fail("KeyError: b")
        await client.enqueue("demo.echo", queue="mail", delay="1h")
        other = await page.context.new_page()
        await other.goto(f"{site}/dashboard/queues")
        await other.locator("tr.row [hx-get$='/mail/pause']").click()
        await other.locator("#dialog form button:not([type=button])").click()  # an action groups them anew
        await expect(rows.nth(1)).to_contain_text("4")
        await expect(rows.first).to_contain_text("Timeout")
        await page.reload()
        await expect(rows.first).to_contain_text("KeyError")


async def test_streams_do_not_keep_the_server_from_stopping(engine: Chromium, app: Demora, settings: Settings) -> None:
    async with watched(engine, expected=REFUSED) as (_, page):
        async with _site(app, settings) as (site, board):
            await page.goto(f"{site}/dashboard")
            await streams(board, 1)
        assert len(board.streams) == 0
