"""What a claim asks of its database where no queue has a pace: counted, not timed."""

from pathlib import Path

import pytest

from bench.counting import statements
from tests.builders import add_one, claim
from tests.clock import TestClock
from tests.setups import SETUPS, Setup

WITHOUT_JOBS = {"sqlite": 6, "postgres": 1}  # begin and commit are statements of SQLite, too
SETUPS_COUNTED = [setup for setup in SETUPS if setup.name.split("-")[0] in WITHOUT_JOBS and "audited" not in setup.name]


@pytest.mark.parametrize("setup", SETUPS_COUNTED, ids=lambda setup: setup.name)
async def test_without_a_pace_a_claim_asks_no_more_than_ever(setup: Setup, tmp_path: Path, clock: TestClock) -> None:
    with statements() as counted:
        store = setup.make(tmp_path, clock)
        await store.open()
        await add_one(store)
        await claim(store)
        counted.clear()
        await claim(store)
        asked = counted["statements"]
        await store.close()
    assert asked == WITHOUT_JOBS[setup.name.split("-")[0]]
