"""events: what an audited engine records of a job, for the checker to judge."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demora.core.job import Unique
from demora.core.spans import to_ms
from demora.store.audit import SqlEvent
from demora.store.jobs import Change
from demora.store.store import Store
from tests.builders import DONE, add_one, claim_one, seconds, settle
from tests.clock import TestClock
from tests.conformance.conftest import opened
from tests.setups import SETUPS, Setup

AUDITED = [setup for setup in SETUPS if setup.name.endswith("-audited")]


@pytest.fixture(params=AUDITED, ids=lambda setup: setup.name)
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture
async def store(setup: Setup, tmp_path: Path, clock: TestClock) -> AsyncIterator[Store]:
    async with opened(setup, tmp_path, clock) as store:
        yield store


async def steps(store: Store) -> list[SqlEvent]:
    return [event for event in await store.audit.events() if event.kind not in ("accepted", "stale")]


async def test_every_step_says_when_the_job_expires_and_what_it_is_unique_by(store: Store, clock: TestClock) -> None:
    expires_at = to_ms(clock.now() + seconds(60))
    added = await add_one(store, expires_in=seconds(60), unique=Unique("k"), delay=seconds(5))
    await store.change(added.id, Change(at=clock.now()))
    await settle(store, await claim_one(store), DONE)
    seen = [(event.kind, event.expires_at, event.unique) for event in await steps(store)]
    assert seen == [(kind, expires_at, "demo.echo k") for kind in ("added", "changed", "claimed", "settled")]


async def test_a_job_without_expiry_and_key_has_neither_in_its_events(store: Store) -> None:
    await add_one(store)
    await claim_one(store)
    assert [(event.expires_at, event.unique) for event in await steps(store)] == [(None, None)] * 2
