"""The counts of a queue are of one moment, whatever moves meanwhile, and each job is only counted."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from demora.core.verdict import HandedBack
from demora.engines.postgres import PostgresOptions, PostgresStore, registry
from demora.engines.postgres.connection.connections import Session, Statement
from demora.store.jobs import ALL_QUEUES, QueueQuery
from tests.builders import add_one, claim_one, new_job, settle

LOOKS = 300


@pytest.fixture
async def other(store: PostgresStore, url: str, schema: str) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(url, PostgresOptions(schema=schema, connections=1), clock=store.clock)
    await other.open()
    yield other
    await other.close()


async def test_a_job_that_moves_between_two_states_is_counted_once(store: PostgresStore, other: PostgresStore) -> None:
    await add_one(store)
    moving = asyncio.ensure_future(_move(store))
    seen = set()
    for _ in range(LOOKS):
        [queue] = await other.queues()
        seen.add((queue.ready, queue.processing))
    moving.cancel()
    await asyncio.wait([moving])
    assert seen == {(1, 0), (0, 1)}


async def _move(store: PostgresStore) -> None:
    """Claim the job and hand it back, for ever."""
    while True:
        await settle(store, await claim_one(store), HandedBack())


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans of the statements that run from now on."""
    plans: list[Any] = []
    rows = Session.rows

    async def explaining(session: Session, name: str, **what: Any) -> list[Any]:
        statement = session._statements[name]
        explained = Statement(f"explain (format json) {statement.sql}", statement.parameters)
        plans.extend(plan["Plan"] for plan in json.loads((await rows(session, explained, **what))[0][0]))
        return await rows(session, name, **what)

    monkeypatch.setattr(Session, "rows", explaining)
    return plans


@pytest.mark.parametrize("which", [ALL_QUEUES, QueueQuery(limit=10)])
@pytest.mark.parametrize("jobs", [1, 1000])
async def test_waiting_jobs_are_counted_as_the_index_is_read(
    store: PostgresStore, schema: str, request: pytest.FixtureRequest, jobs: int, which: QueueQuery
) -> None:
    await store.add([new_job() for _ in range(jobs)])
    async with store._database.opened().session() as session:
        await session.script(f'analyze "{schema}".jobs')
    plans = request.getfixturevalue("plans")
    [queue] = await store.queues(which)
    assert queue.ready == jobs
    [above] = [node["Node Type"] for node, below in _nodes(plans[0]) if below.get("Index Name") == "jobs_waiting"]
    assert above == "Aggregate"  # a join or a sort of a million jobs takes longer than to count them


async def test_the_jobs_of_all_queues_may_be_counted_on_several_cores(
    store: PostgresStore, schema: str, request: pytest.FixtureRequest
) -> None:
    await store.add([new_job() for _ in range(1000)])
    plans = request.getfixturevalue("plans")
    async with store._database.opened().session() as session:
        for free in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_index_scan_size"):
            await session.script(f"set {free} = 0")
        await session.script(f'analyze "{schema}".jobs')
        await registry.queues(session)
    assert "Gather" in {below["Node Type"].removesuffix(" Merge") for _, below in _nodes(plans[0])}


def _nodes(plan: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each node of a plan, with each one below it."""
    for below in plan.get("Plans", ()):
        yield plan, below
        yield from _nodes(below)
