"""A short chaos: every fault for real, once at least, and nothing lost, doubled, stuck, early or accepted from the stale."""

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Plan

pytestmark = [pytest.mark.slow, pytest.mark.timed]


async def test_every_fault_for_real_breaks_no_promise(tmp_path: Path) -> None:
    campaign = Campaign(Plan(seed=random.randrange(10**6), seconds=15, groups=1), tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    assert campaign.never == []
    assert campaign.result.counts["acknowledged"] > 100


async def test_zombies_and_kills_go_on_until_there_were_enough(tmp_path: Path) -> None:
    campaign = Campaign(Plan(seed=random.randrange(10**6), kills=4, zombies=2, groups=1), tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    fired = campaign.result.fired
    assert (fired["kill -9 of a worker in mid-job"] >= 4, fired["zombie: stopped, overtaken, continued"] >= 2) == (
        True,
        True,
    )
