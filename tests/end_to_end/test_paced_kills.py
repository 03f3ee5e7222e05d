"""A paced queue whose many workers and schedulers are killed for real: no slot is used twice, hardly one is left out."""

import asyncio
import random
from collections import Counter

import pytest

from demora import Demora
from demora.core.job import Lane
from demora.core.pace import Pace
from demora.proof import Bounds, check
from tests.builders import ms, seconds
from tests.end_to_end.processes import World
from tests.facts import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timed]

PACE = Pace(gap=seconds(1), burst=10, stagger=ms(50), rapid=None)
JOBS, EACH, KILLS = 120, 4, 12


async def test_no_slot_is_used_twice_when_workers_and_schedulers_are_killed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_AUDIT", "true")
    async with Demora(world.database_url) as app:
        client = await app.open()
        await client.set_pace("default", PACE)
        for _ in range(EACH):
            world.start_worker("--lease", "1s", "--concurrency", "2")
            world.start_scheduler()
        await app.enqueue_many([("quick", {}, {"delay": "2s"})] * JOBS)
        schedulers = {pid for pid, process in world.workers.items() if "scheduler" in process.args}
        chance = random.Random(7)
        for _ in range(KILLS):
            await asyncio.sleep(0.5)  # the time in which slots come and go, not a wait for a fact
            victim = chance.choice(sorted(world.workers))
            world.kill(victim)
            if victim in schedulers:
                schedulers.add(world.start_scheduler().pid)
            else:
                world.start_worker("--lease", "1s", "--concurrency", "2")
        await eventually(client.pacings, lambda found: found[0].held + found[0].coming == 0)
        evidence = await client.evidence()
    findings = check([], evidence, bounds=Bounds(slots=0.95))
    assert findings.of("I8") == 0, [violation.explain() for violation in findings.violations]
    assert findings.judged["I8"] == "events"
    events = evidence.events or []
    releases = [event for event in events if event.kind == "changed" and event.lane == Lane.RELEASED]
    retried = Counter(event.job for event in events if event.kind == "settled" and event.status == "RETRYING")
    released = Counter(event.job for event in releases)
    assert len(released) == JOBS
    # The pace governs retries too, so a job whose worker was killed in its run is released once more.
    assert not (released - Counter(released.keys()) - retried)
    backlog_ends_at = max(min(event.due_at for event in releases if event.job == job) for job in released)
    slots = sorted(event.due_at for event in releases if event.due_at <= backlog_ends_at)
    cycles = (slots[-1] - slots[0]) // 1000 + 1
    assert len(slots) / (cycles * PACE.burst) >= 0.95
