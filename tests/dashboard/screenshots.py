"""Draws each page of the dashboard in four states, with its dialogs, on a desktop and a phone, light and dark:
`make screenshots`.

The clock of database and pages stands still, so two runs draw the same pictures.
"""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Page, ViewportSize

from demora import Demora
from demora.api.access import FRESH, Door
from demora.client.client import Client
from demora.core.access import Scope
from demora.dashboard.access import Access
from demora.dashboard.asgi import Dashboard
from demora.engines.sqlite.engine import SqliteStore
from demora.runtime.front import DASHBOARD
from demora.settings import Settings
from tests.clock import TestClock
from tests.dashboard.chromium import chromium, serving
from tests.dashboard.hostile import LONG, make_hostile
from tests.dashboard.lively import make_failing, make_lively

BEGIN = datetime(2026, 11, 17, 8, 12, tzinfo=UTC)
SIZES: dict[str, ViewportSize] = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
PAGES = {"overview": "", **{name: f"/{name}" for name in ("jobs", "queues", "schedules", "failures", "system")}}
STATES = ("empty", "lively", "failing", "hostile")
# The page of a dialog, and the name of the button that opens it.
DIALOGS = {
    "pause": ("/queues", "Pause"),
    "pace": ("/queues/newsletter", "Edit pace"),
    "add": ("/jobs", "Add a job"),
    "matching": ("/jobs?q=status:failed", "All that match"),
    "redrive": ("/failures", "Retry"),
    "schedule": ("/schedules", "Edit"),
}


async def main(folder: Path, states: tuple[str, ...] = STATES) -> None:
    async with chromium() as browser:
        for state in states:
            await draw(browser, state, folder)


async def draw(browser: Browser, state: str, folder: Path) -> None:
    clock = TestClock()
    clock.step_wall((BEGIN - clock.now()).total_seconds())
    app = Demora(store=SqliteStore(clock=clock))
    async with app:
        client, pages = await app.open(), dict(PAGES)
        pages |= await _filled(client, state, clock)
        settings = Settings(database_url="sqlite://")
        access = Access(app, settings, ask_host=None, open_without_keys=True)
        dashboard = Dashboard(app, settings, access, door=Door(settings), now=clock.now)
        async with serving(Mounted(dashboard)) as site:
            for size, viewport in SIZES.items():
                for scheme in ("light", "dark"):
                    stem = folder / f"{state}-{size}-{scheme}"
                    await shoot(browser, site, pages, stem, viewport, scheme, clock.now(), dialogs=state == "lively")
            if state == "lively":
                await client.keys.create("ops", [Scope.ADMIN])
                await asyncio.sleep(2 * FRESH)  # until the service knows that there are keys
                for size, viewport in SIZES.items():
                    stem = folder / f"{state}-{size}-light"
                    await shoot(browser, site, {"sign-in": "/sign-in"}, stem, viewport, "light", clock.now())


async def _filled(client: Client, state: str, clock: TestClock) -> dict[str, str]:
    """Fill the store, and return more pages to draw."""
    if state == "lively":
        named = await make_lively(client, clock)
        queue = {"queue": "/queues/newsletter", "queue-mail": "/queues/mail", "failed-jobs": "/jobs?q=status:failed"}
    elif state == "failing":
        named, queue = await make_failing(client, clock), {"queue": "/queues/reports"}
    elif state == "hostile":
        failed = await make_hostile(client)
        named = {name: failed[name] for name in ("failed-0", "failed-10")}
        queue = {"queue": "/queues/default", "queue-long": f"/queues/{LONG}"}
    else:
        return {}
    return {name: f"/jobs/{id}" for name, id in named.items()} | queue


class Mounted:
    """The dashboard at its usual place, without the API."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await self._dashboard({**scope, "root_path": DASHBOARD}, receive, send)


async def shoot(
    browser: Browser,
    site: str,
    pages: dict[str, str],
    stem: Path,
    viewport: ViewportSize,
    scheme: Literal["light", "dark"],
    now: datetime,
    *,
    dialogs: bool = False,
) -> None:
    context = await browser.new_context(viewport=viewport, color_scheme=scheme, timezone_id="UTC", device_scale_factor=1)
    await context.clock.set_fixed_time(now)
    page = await context.new_page()
    for name, path in pages.items():
        await _ready(page, f"{site}{DASHBOARD}{path}")
        if viewport == SIZES["phone"]:
            await _show_all(page)
        await page.screenshot(path=f"{stem}-{name}.png")
        await page.set_viewport_size(viewport)
    for name, (path, button) in DIALOGS.items() if dialogs else ():
        await _ready(page, f"{site}{DASHBOARD}{path}")
        await page.get_by_role("button", name=button).first.click()
        await page.locator("#dialog h2").wait_for()
        await page.screenshot(path=f"{stem}-dialog-{name}.png")
    await context.close()


async def _show_all(page: Page) -> None:
    """Make the window as high as the page. A picture of a whole page in a lower window has the bar of the bottom across its
    middle."""
    size = await page.evaluate("({width: innerWidth, height: Math.max(innerHeight, document.documentElement.scrollHeight)})")
    await page.set_viewport_size(size)


async def _ready(page: Page, address: str) -> None:
    await page.goto(address)
    await page.locator("h1, .empty h2, .card label").first.wait_for()
    await page.evaluate("document.fonts.ready")


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    place.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(place, tuple(sys.argv[2:]) or STATES))
