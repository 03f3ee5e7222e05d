"""Paces beside a line: a claim asks the database when a release may be due, and not for every real-time job."""

import pytest

from demora.core.pace import Pace, request_of
from demora.line import LinedStore, claiming
from demora.store.jobs import Claimed, ClaimRequest
from tests.builders import add_ids, add_one, claim_ids, seconds
from tests.facts import eventually
from tests.line.conftest import Open
from tests.servers.valkey import Server

SLOW = Pace(gap=seconds(600), burst=1, stagger=seconds(600), rapid=None)


def counted(store: LinedStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each claim by the SQL store alone."""
    ask, asked = store.inner.claim, list[int]()

    async def claim_and_count(request: ClaimRequest) -> Claimed:
        asked.append(len(asked))
        return await ask(request)

    monkeypatch.setattr(store.inner, "claim", claim_and_count)
    return asked


async def test_real_time_jobs_ask_the_database_for_no_pace(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 3600.0)  # without the safety net
    worker, producer = await open_store(server.url), await open_store(server.url)
    await worker.paces.set("default", request_of(SLOW), by="ann")
    await add_ids(producer, {"delay": seconds(600)})
    await eventually(lambda: claim_ids(worker), lambda ids: ids == [])
    asked = counted(worker, monkeypatch)
    await claim_ids(worker)
    before = len(asked)
    for _ in range(20):
        added = await add_one(producer)
        await eventually(lambda: claim_ids(worker), lambda ids, id=added.id: ids == [id])  # type: ignore[misc]
    assert len(asked) == before


async def test_a_delayed_job_of_another_process_is_released_at_once(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "SQL_CLAIM_EVERY", 3600.0)  # without the safety net
    worker, producer = await open_store(server.url), await open_store(server.url)
    await worker.paces.set("default", request_of(SLOW), by="ann")
    assert await claim_ids(worker) == []
    [id] = await add_ids(producer, {"delay": seconds(0.05)})
    assert await eventually(lambda: claim_ids(worker), bool, within=20) == [id]
