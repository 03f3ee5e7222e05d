"""When a claim asks the line: so early that the answer arrives in time, if the database has a clock of its own."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from demora.line import maintainer as maintaining
from demora.line.maintainer import Maintainer
from tests.builders import add_ids, claim_ids, job_of, seconds
from tests.facts import eventually
from tests.line.conftest import Open
from tests.servers.valkey import Server

TIMES = 40  # that the line is asked, before it is known how quick it is


async def test_a_claim_asks_for_jobs_due_when_the_answer_arrives_and_leases_none_early(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(server.url)
    monkeypatch.setattr(store.inner.line_feed, "wall_us", lambda: None)
    maintainer = await store._maintainer()
    await claim_ids(store)
    [id] = await add_ids(store, {"delay": seconds(0.3)})
    last = [await _ask(maintainer) for _ in range(TIMES)][-1]
    assert 0 < maintainer.clock._quickest_us <= last
    due = (await job_of(store, id)).due_at
    assert await eventually(lambda: claim_ids(store), bool) == [id]
    assert datetime.now(UTC) >= due


async def test_a_process_that_can_read_the_database_clock_asks_when_a_job_is_due(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    maintainer = await store._maintainer()
    for _ in range(TIMES):
        await _ask(maintainer)
    store.inner.line_feed.wall_us = lambda: 1_000_000  # type: ignore[method-assign]
    assert maintainer.clock.answer_us() == maintainer.clock.now_us() == 1_000_000


async def test_a_process_that_only_maintains_the_line_notices_that_the_clock_was_set(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch, brisk: None
) -> None:
    monkeypatch.setattr(maintaining, "CLOCK_TICKS", 1)
    store = await open_store(server.url)
    monkeypatch.setattr(store.inner.line_feed, "wall_us", lambda: None)
    maintainer = await store._maintainer()
    maintainer.clock.learn(1, time.monotonic())
    await eventually(_later(maintainer.clock.now_us), lambda now_us: abs(now_us / 1e6 - time.time()) < 1, within=20)


def _later(ask: Callable[[], int]) -> Callable[[], Awaitable[int]]:
    async def asked() -> int:
        return ask()

    return asked


async def _ask(maintainer: Maintainer) -> float:
    """Ask the line for jobs of no queue; return the microseconds that it took."""
    began = time.monotonic()
    assert await maintainer.take([], 1, in_turn=False) is not None
    return (time.monotonic() - began) * 1e6
