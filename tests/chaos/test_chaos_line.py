"""A short chaos on a line that is emptied and killed under load, with nothing lost, doubled or early."""

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Plan
from tests.chaos.lines import LINED_UP, LOST
from tests.setups import postgres_url, redis_url

pytestmark = [pytest.mark.slow, pytest.mark.timed]


@pytest.mark.parametrize("database", ["sqlite+line", "postgres+line"])
async def test_a_line_that_is_lost_again_and_again_breaks_no_promise(database: str, tmp_path: Path) -> None:
    redis_url()
    if database == "postgres+line":
        postgres_url()
    campaign = Campaign(Plan(seed=random.randrange(10**6), flushes=6, groups=1, database=database), tmp_path)
    await campaign.run()
    assert campaign.result.violations == []
    assert campaign.total(LOST) >= 6
    assert campaign.result.counts[LINED_UP] > 0
    assert campaign.result.counts["acknowledged"] > 20
