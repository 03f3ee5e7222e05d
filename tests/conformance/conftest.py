"""Stores to prove the port on: one of each set-up, and pairs on one place where a set-up can be shared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from demora.store.store import Store
from demora.system.clock import Clock
from tests.clock import TestClock
from tests.setups import BOOTING_SETUPS, SETUPS, SHARED_SETUPS, Setup


def marked(setups: list[Setup]) -> list[Any]:
    """The set-ups, those with an audit as slow: they run the same statements as those without, and triggers beside them."""
    return [pytest.param(one, marks=pytest.mark.slow) if one.name.endswith("-audited") else one for one in setups]


@pytest.fixture(params=marked(SETUPS), ids=lambda setup: setup.name)
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture
async def store(setup: Setup, tmp_path: Path, clock: TestClock) -> AsyncIterator[Store]:
    async with opened(setup, tmp_path, clock) as store:
        yield store


@pytest.fixture(params=marked(BOOTING_SETUPS), ids=lambda setup: setup.name)
async def steady(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Store]:
    """A store whose leases count by a clock that nobody steps."""
    async with opened(request.param, tmp_path, clock) as store:
        yield store


@pytest.fixture(params=marked(SHARED_SETUPS), ids=lambda setup: setup.name)
async def pair(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one place, as two processes have them."""
    async with opened(request.param, tmp_path, clock) as one, opened(request.param, tmp_path, clock) as other:
        yield one, other


@asynccontextmanager
async def opened(setup: Setup, folder: Path, clock: Clock) -> AsyncIterator[Store]:
    store = setup.make(folder, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
