"""A short campaign, the same each time; `make chaos` draws new seeds."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, Plan
from tests.setups import postgres_url, redis_url

SEED = 1
Endure = Callable[..., Awaitable[Campaign]]


@pytest.fixture
def endure(tmp_path: Path) -> Endure:
    """Runs a campaign with the faults of a plan; it must have kept every promise.

    Its worlds live in turn. libfaketime makes reading a clock slow, and beside the herd of another world processes with a
    fake clock kept SQLite's lock for seconds.
    """

    async def endure(database: str = "sqlite", **faults: float) -> Campaign:
        if database.startswith("postgres"):
            postgres_url()
        if database.endswith("+line"):
            redis_url()
        campaign = Campaign(Plan(seed=SEED, groups=1, in_turn=True, database=database, **faults), tmp_path)  # type: ignore[arg-type]
        await campaign.run()
        assert campaign.result.violations == []
        return campaign

    return endure
