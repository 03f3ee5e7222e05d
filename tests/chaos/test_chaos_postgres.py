"""A short chaos on a PostgreSQL that is restarted and whose COMMITs are cut, with nothing lost, doubled or accepted from the
stale."""

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Plan
from tests.chaos.outages import CUTS, RESTARTS
from tests.setups import postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.timed]


async def test_restarts_and_cut_commits_break_no_promise(tmp_path: Path) -> None:
    postgres_url()
    plan = Plan(seed=random.randrange(10**6), restarts=2, cuts=20, groups=1, database="postgres")
    campaign = Campaign(plan, tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    assert (campaign.total(RESTARTS) >= 2, campaign.total(CUTS) >= 20) == (True, True)
    assert campaign.result.counts["acknowledged"] > 20
