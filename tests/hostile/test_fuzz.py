"""Random requests, right and wrong: a short run of `make fuzz`."""

from pathlib import Path

import pytest

from tests.fuzz.run import fuzz
from tests.setups import postgres_url

REQUESTS, SEED = 4000, 20261116


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_random_requests_are_answered_with_less_than_500_and_leave_the_service_well(
    tmp_path: Path, database: str
) -> None:
    if database == "postgres":
        postgres_url()  # skips where there is none
    result = await fuzz(database, REQUESTS, SEED, tmp_path)
    assert result.troubles == []
    assert (result.sent >= REQUESTS, result.looks > 0, result.statuses[200] > 100, result.ways > 50) == (True,) * 4, (
        result.told()
    )
