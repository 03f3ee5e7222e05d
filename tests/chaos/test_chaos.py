"""A short chaos: every fault for real, once at least, and nothing lost, doubled, stuck, early or accepted from the stale."""

import pytest

from tests.chaos.campaign import KILLS, ZOMBIES
from tests.chaos.conftest import Endure

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


async def test_every_fault_for_real_breaks_no_promise(endure: Endure) -> None:
    campaign = await endure(seconds=15)
    assert campaign.never == []
    assert campaign.result.counts["acknowledged"] > 100


async def test_zombies_and_kills_go_on_until_there_were_enough(endure: Endure) -> None:
    campaign = await endure(kills=4, zombies=2)
    assert (campaign.total(KILLS) >= 4, campaign.total(ZOMBIES) >= 2) == (True, True)
