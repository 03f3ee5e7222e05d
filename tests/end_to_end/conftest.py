"""A database with real processes on it."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from demora import Demora
from tests.end_to_end.processes import World, world_in

MEMORY = Path("/dev/shm")


@pytest.fixture
def world() -> Iterator[World]:
    """In memory where there is a folder of it: a kill -9 spares what was written, and a busy disk is not what is judged."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="demora-") as folder, world_in(Path(folder)) as world:
        yield world


@pytest.fixture
async def app(world: World) -> AsyncIterator[Demora]:
    async with Demora(world.database_url) as app:
        yield app
