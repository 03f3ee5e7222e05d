"""The variables of the gap manager in the environment of a real worker, and nothing else set."""

from itertools import pairwise

import pytest

from demora import Demora
from demora.core.states import Status
from tests.end_to_end.processes import World
from tests.facts import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.mark.parametrize(
    ("variables", "gaps"),
    [
        ({"DELAYED_JOB_GAP_SECONDS": "1", "MAX_DELAYED_JOBS_PER_CYCLE": "1"}, 1.0),
        ({"DEMORA_PACE": "gap=1s burst=2"}, 0.5),
    ],
    ids=["of the source", "of demora"],
)
async def test_jobs_that_are_due_together_start_one_gap_apart_in_a_queue_that_nobody_paced(
    world: World, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], gaps: float
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with Demora(world.database_url) as app:
        world.start_worker()
        client = await app.open()
        await eventually(client.pacings, lambda found: [pacing.queue for pacing in found] == ["*"], within=20)
        jobs = await app.enqueue_many([("quick", {}, {"delay": "300ms", "queue": "named-later"})] * 3)
        done = [await app.wait(job.id, timeout="30s") for job in jobs]
        assert {job.status for job in done} == {Status.COMPLETED}
        starts = sorted(job.due_at for job in done)  # their release times
    assert [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(starts)] == [gaps, gaps]
