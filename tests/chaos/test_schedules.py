"""A short campaign of schedules: eight schedulers and two workers that are killed, and a clock that is set."""

import random
from pathlib import Path

import pytest

from tests.chaos.schedules import POLICIES, Firings
from tests.setups import ENGINE, postgres_url, redis_url

pytestmark = [pytest.mark.slow, pytest.mark.campaign]

SECONDS = 15
DATABASES = ["sqlite", "postgres", "sqlite+line", "postgres+line"]


@pytest.mark.parametrize("database", DATABASES)
async def test_each_second_has_one_job_whoever_dies(tmp_path: Path, database: str) -> None:
    if "postgres" in database:
        postgres_url()  # skips where there is none
    elif ENGINE.endswith("postgres"):
        pytest.skip("only PostgreSQL is asked for")
    if "line" in database:
        redis_url()
    elif ENGINE.startswith("lined"):
        pytest.skip("only a line is asked for")
    campaign = Firings(SECONDS / 60, database, tmp_path, random.randrange(10**6))
    await campaign.run()
    assert campaign.violations == []
    assert campaign.kills >= SECONDS / 3
    assert all(campaign.slots[f"{policy} fired"] > 0 for policy in POLICIES)
