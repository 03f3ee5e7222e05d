"""An application with some handlers, in a sandbox whose clock stands still."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from demora import Demora, Retry
from demora.testing import Sandbox

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Demora:
    app = Demora("sqlite:///must-not-be-made.db")

    @app.job("count")
    async def count(down_from: int, by: str | None = None) -> int:
        if down_from:
            await count.options(delay=by).enqueue(down_from=down_from - 1, by=by)
        return down_from

    @app.job("count.plain")
    def count_plain(down_from: int) -> int:
        if down_from:
            count_plain.enqueue_blocking(down_from=down_from - 1)
        return down_from

    @app.job("break", max_retries=2, retry_delay="1s", jitter=1.0)
    async def break_() -> None:
        raise Retry("not yet")

    @app.job("again")
    async def again() -> None:
        await again.enqueue()

    return app


@pytest.fixture
def sandbox(app: Demora) -> Iterator[Sandbox]:
    with Sandbox(app, now=NOON) as sandbox:
        yield sandbox
