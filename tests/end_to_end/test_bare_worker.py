"""A worker that was started without the application, beside one that has it."""

import asyncio

import pytest

from demora import Demora
from demora.core.states import Status
from tests.end_to_end.processes import World
from tests.facts import eventually

pytestmark = pytest.mark.slow


async def test_a_worker_without_the_application_takes_and_delays_no_job(world: World, app: Demora) -> None:
    client = await app.open()
    world.start_worker()
    world._start("worker")
    await eventually(client.workers, lambda workers: len(workers) == 2, within=60)
    jobs = await app.enqueue_many([("quick", {})] * 60)
    done = [await app.wait(job.id, timeout="60s") for job in jobs]
    assert {(job.status, job.token) for job in done} == {(Status.COMPLETED, 1)}  # no job was ever handed back
    said = world.output.read_text()
    assert said.count("built-in handlers only") == 1
    assert "no live worker" not in said


async def test_an_unknown_type_costs_one_warning_with_the_remedy(world: World, app: Demora) -> None:
    world._start("worker")
    await app.enqueue_many([("report.build", {})] * 300)
    behind = await app.enqueue("demo.echo")
    assert (await app.wait(behind.id, timeout="60s")).status is Status.COMPLETED
    said = await eventually(lambda: asyncio.to_thread(world.output.read_text), lambda said: "report.build" in said)
    warned = [line for line in said.splitlines() if "report.build" in line]
    assert len(warned) == 1
    assert "--app module:app" in warned[0]
    why = await (await app.open()).why((await app.enqueue("report.build")).id)
    assert why.sentence.startswith("It is ready, but no live worker knows report.build;")
