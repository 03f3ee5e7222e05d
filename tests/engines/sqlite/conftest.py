"""SQLite files to look at from outside."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demora.engines.sqlite import SqliteStore
from tests.clock import TestClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path, clock: TestClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=clock)
    await store.open()
    yield store
    await store.close()
