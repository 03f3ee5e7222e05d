"""A real Chromium, and the dashboard on a port for it."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome")
SHOWN = 12_000  # milliseconds: enough for ten tabs on a busy machine, and less than the slow refresh of a page (15 s)
expect.set_options(timeout=SHOWN)


def executable() -> str:
    """Return the path of Chromium. Without one a test is skipped, and fails in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium; make browser installs it")
    return found


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application on a port of this machine, by default a free one, and give its address. At the end the
    streams of the application end, if it has any."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
    task = asyncio.ensure_future(server.serve())
    try:
        while not server.started:
            await asyncio.wait({task}, timeout=0.01)
            assert not task.done()
        [listener] = server.servers[0].sockets
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        if hasattr(app, "stop"):
            app.stop()
        server.should_exit = True
        await task


@asynccontextmanager
async def watched(
    browser: Browser, *, expected: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[tuple[BrowserContext, Page]]:
    """Open a page, and fail if it logs an error, raises one, or asks the user something. Errors with an expected text do
    not count."""
    troubles: list[str] = []
    context = await browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
    page = await context.new_page()

    def watch(one: Page) -> None:
        one.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
        one.on("pageerror", lambda error: troubles.append(str(error)))
        one.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))

    watch(page)
    context.on("page", watch)
    try:
        yield context, page
        troubles = [one for one in troubles if not any(text in one for text in expected)]
        assert troubles == [], troubles
    finally:
        await context.close()
