"""The outlooks of several jobs at once: they say the same as the outlook of each job alone."""

import msgspec

from demora.core.pace import make_pace_request
from demora.store.jobs import QueueChange
from demora.store.store import Store
from tests.builders import NO_IDS, NO_SUCH_ID, add_ids, claim_one, seconds


async def test_a_batch_says_the_same_as_each_job_alone(store: Store) -> None:
    await store.paces.set("mail", make_pace_request(gap="1m", burst=1), by="ann")
    await store.set_queue("closed", QueueChange(paused=True, reason="no", by="ann"))
    running = await add_ids(store, {"queue": "plain"})
    await claim_one(store)
    ids = running + await add_ids(
        store, {"queue": "mail", "delay": seconds(0)}, {"queue": "plain"}, {"queue": "plain"}, {"queue": "closed"},
        {"queue": "plain", "delay": seconds(60)},
    )  # fmt: skip
    ids.reverse()
    batch = await store.paces.outlooks(ids, most_ahead=1000)
    assert [one.job.id for one in batch] == ids
    for one in batch:
        alone = await store.paces.outlook(one.job.id)
        assert alone is not None
        bare = msgspec.structs.replace(alone.job, payload_json=b"", result_json=b"", log=())
        assert msgspec.structs.replace(alone, job=bare, most_ahead=1000) == one


async def test_counting_the_jobs_ahead_stops_at_the_limit(store: Store) -> None:
    *_, fourth, last = await add_ids(store, *({} for _ in range(6)))
    capped = await store.paces.outlooks([fourth, last], most_ahead=4)
    assert [(one.ahead, one.more_ahead) for one in capped] == [(4, True), (4, True)]
    exact = await store.paces.outlooks([last], most_ahead=6)
    assert [(one.ahead, one.more_ahead) for one in exact] == [(5, False)]


async def test_ids_that_no_job_has_are_left_out(store: Store) -> None:
    [id] = await add_ids(store, {})
    found = await store.paces.outlooks([*NO_IDS, id, NO_SUCH_ID], most_ahead=1)
    assert [one.job.id for one in found] == [id]
