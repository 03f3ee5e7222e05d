"""Processes that are started together are not there at the same moment: who is first waits for the database."""

import asyncio

import pytest

from demora import Demora
from demora.core.states import Status
from tests.end_to_end.processes import World
from tests.facts import eventually
from tests.servers import postgres
from tests.setups import postgres_url

pytestmark = pytest.mark.slow


async def test_a_worker_waits_for_a_server_that_is_started_after_it(world: World) -> None:
    postgres_url()
    server = postgres.Server(postgres.QUICK)
    try:
        world.database_url = server.url
        server.kill()
        world.start_worker()
        await eventually(lambda: asyncio.to_thread(world.output.read_text), lambda said: "next try in" in said, within=30)
        server.start()
        async with Demora(server.url) as app:
            job = await app.enqueue("demo.echo", {"hi": 1})
            assert (await app.wait(job.id, "30s")).status is Status.COMPLETED
        said = world.output.read_text()
        assert "cannot reach PostgreSQL" in said
        assert "opening the database works again" in said
    finally:
        server.close()


async def test_a_worker_whose_database_is_refused_to_it_ends_at_once(world: World) -> None:
    world.database_url = postgres_url().rsplit("/", 1)[0] + "/no_such_database"
    assert await asyncio.to_thread(world.start_worker().wait, 30) == 1
    said = world.output.read_text()
    assert "no_such_database" in said
    assert "next try in" not in said
