"""A database with real processes on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from demora import Demora
from tests.system.processes import World, world_in


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_in(tmp_path) as world:
        yield world


@pytest.fixture
async def app(world: World) -> AsyncIterator[Demora]:
    async with Demora(world.database_url) as app:
        yield app
