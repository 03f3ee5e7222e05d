"""An application on a real file, and events that handlers can be held at."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demora import Demora, Job
from demora.engines.sqlite import SqliteStore
from tests.copies import jobs_file


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Demora]:
    async with Demora(store=SqliteStore(jobs_file(tmp_path))) as app:
        yield app


class Gate:
    """A place where a handler waits: the test sees it arrive, and lets it go."""

    def __init__(self) -> None:
        self._arrived, self._open = asyncio.Event(), asyncio.Event()

    async def arrive(self) -> None:
        self._arrived.set()
        await self._open.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(60):
            await self._arrived.wait()

    def open(self) -> None:
        self._open.set()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


async def ended(app: Demora, job: Job | str) -> Job:
    """The job once it has ended."""
    found = await app.wait(job if isinstance(job, str) else job.id, "90s")
    assert found.status.ended, found
    return found
