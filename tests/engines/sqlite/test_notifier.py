"""Wake-ups across stores on one file, through sockets beside it."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demora.engines.sqlite import SqliteStore
from demora.store.jobs import Topic
from tests.builders import add_one
from tests.clock import TestClock
from tests.sim.world import World

SOON = 2.0


def folder(path: Path) -> Path:
    return path.with_name(path.name + "-sockets")


def sockets_of(path: Path) -> int:
    """How many sockets a database has."""
    return len(list(folder(path).iterdir())) if folder(path).is_dir() else 0


async def wakes_across_stores(path: Path, clock: TestClock, *, sockets: int) -> None:
    """Subscribe in one store, add in another, and wait."""
    one, other = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock)
    await one.open()
    await other.open()
    try:
        with one.subscribe(Topic.READY) as place:
            assert sockets_of(path) == sockets
            place.clear()
            await one.queues()
            await add_one(other)
            await asyncio.wait_for(place.wait(None), SOON)
    finally:
        await one.close()
        await other.close()


async def test_long_paths_ring_too(tmp_path: Path, clock: TestClock) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    assert len(str(deep / "jobs.db")) > 108
    await wakes_across_stores(deep / "jobs.db", clock, sockets=1)


async def test_where_no_bell_can_hang_the_file_is_looked_at(path: Path, clock: TestClock) -> None:
    folder(path).write_text("in the way of the sockets")
    await wakes_across_stores(path, clock, sockets=0)


async def test_a_store_has_one_bell_for_each_topic_and_takes_them_down_when_it_closes(
    store: SqliteStore, path: Path
) -> None:
    for _ in range(3):
        with store.subscribe(Topic.READY), store.subscribe(Topic.READY), store.subscribe(Topic.ENDED):
            assert sockets_of(path) == 2
    await store.close()
    assert sockets_of(path) == 0


async def test_the_folder_of_the_bells_is_private(store: SqliteStore, path: Path) -> None:
    with store.subscribe(Topic.READY):
        assert folder(path).stat().st_mode & 0o777 == 0o700


async def test_stale_bells_are_swept_away(store: SqliteStore, path: Path) -> None:
    stale = folder(path) / "ready.1.1"
    folder(path).mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(stale))
    assert stale.exists()
    await add_one(store)
    assert not stale.exists()


async def test_a_full_bell_holds_nobody_up_and_stays(store: SqliteStore, path: Path) -> None:
    full = folder(path) / "ready.1.1"
    folder(path).mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as busy:
        busy.bind(str(full))
        async with asyncio.timeout(30):
            await asyncio.gather(*(add_one(store) for _ in range(50)))
            for _ in range(50):
                await add_one(store)
        assert full.exists()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open no more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_process_that_can_open_no_more_files_looks_at_the_file(path: Path, clock: TestClock) -> None:
    one, other = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock)
    await one.open()
    await other.open()
    try:
        with no_descriptor_left():
            subscribed = one.subscribe(Topic.READY)
            place = subscribed.__enter__()
        place.clear()
        await one.queues()
        await add_one(other)
        await asyncio.wait_for(place.wait(None), SOON)
        subscribed.__exit__(None, None, None)
    finally:
        await one.close()
        await other.close()


def test_a_waiter_sleeps_to_its_timeout_while_the_wall_clock_goes_as_the_loops_does() -> None:
    world = World(1)

    async def wait_an_hour() -> bool:
        store = world.store()
        await store.open()
        with store.subscribe(Topic.READY) as place:
            place.clear()
            return await place.wait(3600)

    assert world.loop.run_until_complete(wait_an_hour()) is False
    assert world.loop.time() >= 3600
    world.close()
