"""Which settlements are recorded together."""

import asyncio
from collections.abc import Sequence

import pytest

from demora.engines.sqlite import SqliteStore
from demora.worker import settling
from demora.worker.settling import Settler
from tests.builders import DONE, LEASE, add_ids, claim, settlement


@pytest.mark.parametrize(("most_bytes", "batches"), [(10**6, [4]), (2 * len(DONE.result), [2, 2])])
async def test_settlements_that_follow_one_another_share_a_batch_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, batches: list[int]
) -> None:
    monkeypatch.setattr(settling, "LONGEST_GATHERING", 60.0)
    monkeypatch.setattr(settling, "MOST_BYTES", most_bytes)
    recorded = list[Sequence[object]]()
    store = SqliteStore()
    await store.open()
    settle = store.settle
    monkeypatch.setattr(store, "settle", lambda batch: (recorded.append(batch), settle(batch))[1])
    settler = Settler(store, LEASE, on_settled=lambda *_: None, on_recorded=lambda _: None)
    await add_ids(store, {}, {}, {}, {})
    for job in (await claim(store)).jobs:
        settler.add(settlement(job, DONE))
        await asyncio.sleep(0)
    assert await settler.drain()
    await store.close()
    assert [len(batch) for batch in recorded] == batches
