"""A short chaos on a line that is emptied and killed under load, with nothing lost, doubled or early."""

import pytest

from tests.chaos.conftest import Endure
from tests.chaos.lines import LINED_UP, LOST

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


@pytest.mark.parametrize("database", ["sqlite+line", "postgres+line"])
async def test_a_line_that_is_lost_again_and_again_breaks_no_promise(database: str, endure: Endure) -> None:
    campaign = await endure(database, flushes=6)
    assert campaign.total(LOST) >= 6
    assert campaign.result.counts[LINED_UP] > 0
    assert campaign.result.counts["acknowledged"] > 20
