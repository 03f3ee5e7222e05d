"""A short campaign of remote workers: they and the service are killed, and their connections are cut."""

from pathlib import Path

import pytest

from tests.chaos.remote import RemoteCampaign
from tests.setups import ENGINE, postgres_url, redis_url

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
SECONDS, SEED = 4.0, 1


@pytest.mark.parametrize("database", ["sqlite", "postgres+line"])
async def test_remote_workers_keep_the_guarantees_whoever_dies(tmp_path: Path, database: str) -> None:
    if database == "postgres+line":
        postgres_url()  # skips where there is none
        redis_url()
    elif ENGINE == "postgres":
        pytest.skip("only PostgreSQL is asked for")
    campaign = RemoteCampaign(SECONDS, database, tmp_path, SEED)
    await campaign.run()
    assert campaign.violations == []
    assert len(campaign.faults) == 5
    assert campaign.calls["add ok"] >= 20
