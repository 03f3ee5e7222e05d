"""reconcile and rebuild: every waiting job within the horizon has exactly one place, and every place has its job."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from demora.core.job import Priority, Unique
from demora.core.pace import Pace, request_of
from demora.doctor import judge_line
from demora.line import LinedStore, reconcile
from demora.line import maintainer as maintaining
from demora.store.line_feed import Entry, Place
from tests.builders import DONE, add_ids, add_one, claim, claim_one, seconds, settle
from tests.facts import eventually
from tests.line import bare
from tests.line.conftest import Open
from tests.servers.valkey import Server


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare again at once, let no sweep repair the line meanwhile, and wait for a line that answers late."""
    bare.patient(monkeypatch)
    monkeypatch.setattr(reconcile, "RECHECK", 0.0)
    monkeypatch.setattr(maintaining, "TICK", 600.0)


async def test_a_line_that_was_only_used_agrees_with_its_rows(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    await add_ids(store, {}, {"delay": seconds(60)}, {"delay": seconds(9000)})
    await settle(store, await claim_one(store), DONE)
    compared = await store.reconcile()
    assert (compared.agrees, compared.waiting, compared.away) == (True, 1, None)
    [finding] = judge_line(compared)
    assert finding.level == "ok"


async def test_a_job_released_beside_a_claim_is_put_into_the_line(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    await store.paces.set(
        "default", request_of(Pace(gap=seconds(600), burst=2, stagger=seconds(0.001), rapid=None)), by="ann"
    )
    await add_ids(store, {"delay": seconds(0.01)}, {"delay": seconds(0.01)})
    passed = datetime.now(UTC) + timedelta(seconds=0.05)  # both slots
    await eventually(lambda: asyncio.to_thread(datetime.now, UTC), lambda now: now > passed)
    claimed = await claim(store, limit=1)
    assert (len(claimed.released), len(claimed.jobs)) == (2, 1)
    compared = await store.reconcile()
    assert (compared.agrees, compared.waiting) == (True, 1)


@pytest.mark.parametrize("change", [{"queue": "b"}, {"delay": seconds(9000)}, {"queue": "b", "delay": seconds(9000)}])
async def test_a_unique_job_that_is_replaced_leaves_its_place(
    change: dict[str, Any], server: Server, open_store: Open
) -> None:
    store = await open_store(server.url)
    unique = Unique("k", replace=True)
    first = await add_one(store, unique=unique, delay=seconds(60))
    assert (await add_one(store, **{"unique": unique, "delay": seconds(60), **change})).id == first.id
    places, _ = await (await store._maintainer()).line.places()
    assert [place.queue for place in places] == (["b"] if change == {"queue": "b"} else [])
    assert (await store.reconcile()).agrees


async def spoiled(store: LinedStore) -> tuple[str, str, str]:
    """Three jobs: not in the line, in the line after their end, in a wrong place and twice."""
    maintainer = await store._maintainer()
    stray = await add_one(store)
    await settle(store, await claim_one(store), DONE)
    missing, misplaced = await add_ids(store, {"delay": seconds(60)}, {"delay": seconds(60), "queue": "b"})
    await maintainer.line.remove([Entry(missing, "default")])
    wrong = [Place(id, "default", 0, Priority.LOW, 2**40) for id in (stray.id, misplaced)]
    await maintainer.line.put(wrong, now=0)
    return missing, stray.id, misplaced


async def test_differences_are_listed_and_repaired(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    missing, stray, misplaced = await spoiled(store)
    compared = await store.reconcile()
    assert (compared.missing, compared.surplus, compared.misplaced) == ((missing,), (stray,), (misplaced,))
    assert [finding.level for finding in judge_line(compared)] == ["problem"] * 3
    repaired = await store.reconcile(repair=True)
    assert repaired.repaired
    assert [finding.level for finding in judge_line(repaired)] == ["ok"] * 3
    assert (await store.reconcile()).agrees


async def test_a_rebuilt_line_agrees(server: Server, open_store: Open) -> None:
    store = await open_store(server.url)
    await spoiled(store)
    before = (await store.inner.line_feed.begin()).epoch
    assert await store.rebuild() == before + 1
    assert (await store.reconcile()).agrees


async def test_without_a_server_there_is_nothing_to_compare(open_store: Open) -> None:
    store = await open_store("redis://127.0.0.1:1")
    compared = await store.reconcile()
    assert compared.away is not None
    [finding] = judge_line(compared)
    assert (finding.level, "not in use" in finding.fact) == ("warning", True)
    assert list(judge_line(None)) == []
