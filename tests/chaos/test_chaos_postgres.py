"""A short chaos on a PostgreSQL that is restarted and whose COMMITs are cut, with nothing lost, doubled or accepted from the
stale; and on one whose many workers and schedulers are killed."""

import pytest

from tests.chaos.campaign import KILLS, SCHEDULERS
from tests.chaos.conftest import Endure
from tests.chaos.judging import RELEASES
from tests.chaos.outages import CUTS, RESTARTS

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


async def test_kills_of_four_workers_and_four_schedulers_use_no_slot_of_a_pace_twice(endure: Endure) -> None:
    campaign = await endure("postgres", kills=4, schedulers=4)
    assert (campaign.total(KILLS) >= 4, campaign.total(SCHEDULERS) >= 4) == (True, True)
    assert campaign.result.counts[RELEASES] > 0


async def test_restarts_and_cut_commits_break_no_promise(endure: Endure) -> None:
    campaign = await endure("postgres", restarts=2, cuts=20)
    assert (campaign.total(RESTARTS) >= 2, campaign.total(CUTS) >= 20) == (True, True)
    assert campaign.result.counts["acknowledged"] > 20
