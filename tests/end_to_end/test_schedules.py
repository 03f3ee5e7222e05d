"""A schedule in code whose workers are killed for real: each fire time has one job."""

from itertools import pairwise

import pytest

from demora import Demora, Job
from demora.core.schedules.firing import FireOutcome
from tests.end_to_end.processes import World
from tests.facts import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timed]


async def test_each_fire_time_has_one_job_when_one_of_two_workers_is_killed(
    world: World, app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_TEST_TICK", "1")
    client = await app.open()
    victim, _ = world.start_worker("--lease", "1s"), world.start_worker("--lease", "1s")

    async def completed() -> list[Job]:
        page = await app.find(type="tick", status="COMPLETED", limit=200)
        return [job for job in page.jobs if job.result is not None]

    await eventually(completed, lambda jobs: len(jobs) >= 3)
    world.kill(victim.pid)
    before = len(await completed())
    jobs = await eventually(completed, lambda jobs: len(jobs) >= before + 4)

    records = await client.fire_records("tick", limit=200)
    fired = [record for record in records if record.outcome is FireOutcome.FIRED]
    every = (await app.find(type="tick", limit=200)).jobs
    assert len({job.slot_at for job in every}) == len(every)
    assert {job.slot_at for job in jobs} <= {record.slot_at for record in fired}
    fire_times = sorted(record.slot_at for record in records)
    assert [(later - earlier).total_seconds() for earlier, later in pairwise(fire_times)] == [1.0] * (len(fire_times) - 1)
    assert all(job.created_at >= job.slot_at for job in every if job.slot_at is not None)
