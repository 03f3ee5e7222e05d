"""The table of moves holds for what the engines write: each step that an audit records is a move of a job."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from demora.core.retention import Retention
from demora.core.states import MOVES, Status
from demora.core.verdict import Cancelled, HandedBack, Raised, Snoozed
from demora.store.store import Store
from tests.builders import BROKEN, DONE, LEASE, add_ids, add_one, claim, claim_one, run_one, seconds, settle, settle_lapsed
from tests.clock import TestClock
from tests.conformance.conftest import opened
from tests.setups import SETUPS, Setup

AUDITED = [setup for setup in SETUPS if setup.name.endswith("audited")]


@pytest.fixture(params=AUDITED, ids=lambda setup: setup.name)
async def audited(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Store]:
    setup: Setup = request.param
    async with opened(setup, tmp_path, clock) as store:
        yield store


async def test_every_step_is_in_the_table_of_moves(audited: Store, clock: TestClock) -> None:
    store = audited
    for outcome in (DONE, BROKEN, Cancelled("no need"), HandedBack(), Snoozed(timedelta(hours=9)), Raised("no")):
        await add_one(store)
        await run_one(store, outcome)
    job = await claim_one(store)  # the one handed back
    await store.cancel([job.lease.id])
    await settle(store, job, Raised("too late"))
    lapsing = await add_one(store)
    await claim_one(store)
    clock.turn(LEASE.total_seconds() + 1)
    await settle_lapsed(store)
    waiting, again = await add_ids(store, {"delay": seconds(99)}, {"delay": seconds(99)})
    await store.cancel([waiting, again, lapsing.id])
    await store.restore(waiting, within=seconds(30))
    await store.restore(lapsing.id, within=seconds(30))
    await store.retry([again])
    await add_one(store, expires_in=seconds(1), delay=seconds(0.5))
    clock.turn(5)
    await store.housekeep(Retention(), limit=100)
    for job in (await claim(store)).jobs:  # those that are retried
        await settle(store, job, BROKEN)
        await store.retry([job.lease.id])
    events = (await store.audit.evidence(integrity=False)).events or []
    moves = {
        (Status[event.old_status], Status[event.status])
        for event in events
        if event.old_status is not None and event.status is not None and event.old_status != event.status
    }
    assert {move for move in moves if move[1] not in MOVES[move[0]]} == set()
    never = {(before, after) for before, afters in MOVES.items() for after in afters} - moves
    assert never == {
        (Status.PENDING, Status.QUEUED),  # no job is PENDING
        (Status.PENDING, Status.CANCELLED),
        (Status.QUEUED, Status.FAILED),  # after an hour without a worker that knows the type: test_unknown_types.py
        (Status.RETRYING, Status.FAILED),
    }
