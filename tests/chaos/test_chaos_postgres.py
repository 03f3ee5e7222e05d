"""A short chaos on a PostgreSQL that is restarted and whose COMMITs are cut, with nothing lost, doubled or accepted from the
stale; and on one whose many workers and schedulers are killed."""

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import KILLS, SCHEDULERS, Campaign, Plan
from tests.chaos.judging import RELEASES
from tests.chaos.outages import CUTS, RESTARTS
from tests.setups import postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.timed]


async def test_kills_of_four_workers_and_four_schedulers_use_no_slot_of_a_pace_twice(tmp_path: Path) -> None:
    postgres_url()
    plan = Plan(seed=random.randrange(10**6), kills=4, schedulers=4, groups=1, database="postgres")
    campaign = Campaign(plan, tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    assert (campaign.total(KILLS) >= 4, campaign.total(SCHEDULERS) >= 4) == (True, True)
    assert campaign.result.counts[RELEASES] > 0


async def test_restarts_and_cut_commits_break_no_promise(tmp_path: Path) -> None:
    postgres_url()
    plan = Plan(seed=random.randrange(10**6), restarts=2, cuts=20, groups=1, database="postgres")
    campaign = Campaign(plan, tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    assert (campaign.total(RESTARTS) >= 2, campaign.total(CUTS) >= 20) == (True, True)
    assert campaign.result.counts["acknowledged"] > 20
