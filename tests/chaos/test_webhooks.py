"""A short campaign of webhooks: a receiver that fails and hangs, and senders that are killed."""

from pathlib import Path

import pytest

from tests.chaos.conftest import SEED
from tests.chaos.webhooks import KILLS, Deliveries
from tests.setups import ENGINE, postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_every_end_is_told_whoever_dies(tmp_path: Path, database: str) -> None:
    if database == "postgres":
        postgres_url()  # skips where there is none
    elif ENGINE == "postgres":
        pytest.skip("only PostgreSQL is asked for")
    campaign = Deliveries(240, database, tmp_path, SEED)
    await campaign.run()
    assert campaign.violations == []
    assert (campaign.kills, len(campaign.told.ids)) == (KILLS, 240)
