"""The OpenAPI document and the service agree, on every route and on both engines. `make fuzz` goes on for hours."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from demora.api.routes import ROUTES
from tests.fuzz.run import served
from tests.fuzz.schema import explore
from tests.setups import postgres_url

EXAMPLES = 3


def databases() -> list[str]:
    """Those that there are on this machine."""
    with contextlib.suppress(pytest.skip.Exception):
        postgres_url()
        return ["sqlite", "postgres"]
    return ["sqlite"]


@pytest.mark.slow
async def test_answers_are_what_the_document_says_and_the_same_on_both_engines(tmp_path: Path) -> None:
    urls: list[str] = []
    async with contextlib.AsyncExitStack() as services:
        for database in databases():
            folder = tmp_path / database
            folder.mkdir()
            service = await services.enter_async_context(served(database, folder))
            urls.append(f"http://127.0.0.1:{service.port}")
        found = await asyncio.to_thread(explore, urls, examples=EXAMPLES)
    assert found.troubles == []
    assert len(found.routes) == len(ROUTES)
    assert {200, 201, 404, 422} <= set(found.statuses)
