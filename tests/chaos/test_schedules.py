"""A short campaign of schedules: eight schedulers and two workers that are killed, and clocks that are set."""

import random
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from demora.engines.postgres import PostgresOptions, PostgresStore
from tests.chaos.clocks import DatabaseClock
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
    if "postgres" in database:
        assert campaign.jumps > 0
    assert all(campaign.fire_times[f"{policy} fired"] > 0 for policy in POLICIES)


async def test_the_clock_of_a_database_is_set_for_open_sessions_too() -> None:
    clock = await DatabaseClock.make(postgres_url(), f"turned_{secrets.token_hex(4)}")
    store = PostgresStore(clock.url, PostgresOptions(connections=2))
    await store.open()
    for hours in (0, 1, -1, 0):
        await clock.set(hours * 3600)
        apart = (await store.schedules.due(limit=1)).now - datetime.now(UTC)
        assert abs(apart - timedelta(hours=hours)) < timedelta(minutes=10)
    await store.close()
