"""find: filters, newest first, page by page."""

import msgspec
import pytest

from demora.core.states import Status
from demora.core.verdict import Raised
from demora.errors import NotRead
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import NO_SUCH_ID, add_ids, add_one, claim_one, ended_one, job_of, run_one, seconds
from tests.clock import TestClock


async def found(store: Store, **query) -> list[str]:
    return [job.id for job in (await store.find(Query(**query))).jobs]


async def pages(store: Store, **query) -> list[list[str]]:
    """All pages, each as a list of ids."""
    pages, after = [], None
    while True:
        page = await store.find(Query(after=after, **query))
        pages.append([job.id for job in page.jobs])
        if page.next is None:
            return pages
        after = page.next


async def test_an_empty_store_has_an_empty_page(store: Store) -> None:
    page = await store.find(Query())
    assert (page.jobs, page.next) == ([], None)


async def test_the_newest_comes_first(store: Store) -> None:
    ids = await add_ids(store, {"delay": seconds(9)}, {}, {"queue": "a"})
    assert await found(store) == ids[::-1]


async def test_a_page_has_fifty_jobs_unless_another_limit_is_asked_for(store: Store) -> None:
    ids = await add_ids(store, *[{}] * 51)
    assert await pages(store) == [ids[:0:-1], ids[:1]]
    assert [len(page) for page in await pages(store, limit=30)] == [30, 21]


async def test_jobs_are_found_by_queue_type_and_tag(store: Store) -> None:
    a, b, c = await add_ids(store, {"queue": "a", "tags": ("x", "y")}, {"type": "b.b", "tags": ("y",)}, {"queue": "a"})
    assert await found(store, queue="a") == [c, a]
    assert await found(store, type="b.b") == [b]
    assert await found(store, tag="y") == [b, a]
    assert await found(store, tag="y", queue="a") == [a]
    assert await found(store, tag="z") == await found(store, queue="z") == await found(store, type="z") == []


async def one_of_each(store: Store) -> dict[Status, str]:
    """A job in each state that a job can be seen in."""
    ended = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    jobs = {status: await ended_one(store, status) for status in ended}
    jobs[Status.RETRYING] = await run_retrying(store)
    jobs[Status.PROCESSING] = (await add_one(store)).id
    await claim_one(store)
    jobs[Status.QUEUED] = (await add_one(store)).id
    return jobs


async def run_retrying(store: Store) -> str:
    await add_one(store)
    return await run_one(store, Raised("no"))


async def test_jobs_are_found_by_each_status(store: Store) -> None:
    for status, id in (await one_of_each(store)).items():
        assert await found(store, statuses=frozenset({status})) == [id], status


async def test_jobs_are_found_by_several_statuses(store: Store) -> None:
    jobs = await one_of_each(store)
    found_ids = await found(store, statuses=frozenset({Status.FAILED, Status.QUEUED}))
    assert found_ids == [jobs[Status.QUEUED], jobs[Status.FAILED]]


@pytest.mark.parametrize("status", [Status.FAILED, Status.PROCESSING, Status.COMPLETED])
async def test_a_status_can_be_narrowed_further_and_paged(store: Store, status: Status) -> None:
    ids = [await one_in(store, status, queue=queue) for queue in "aabab"]
    newest_of_a = [ids[n] for n in (3, 1, 0)]
    assert await pages(store, statuses=frozenset({status}), queue="a", limit=2) == [newest_of_a[:2], newest_of_a[2:]]


async def one_in(store: Store, status: Status, **changes) -> str:
    if status is not Status.PROCESSING:
        return await ended_one(store, status, **changes)
    await add_one(store, **changes)
    return (await claim_one(store)).lease.id


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (2, [2]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])])
async def test_pages_join_without_gap_or_overlap(store: Store, count: int, sizes: list[int]) -> None:
    ids = await add_ids(store, *[{} for _ in range(count)])
    found = await pages(store, limit=3)
    assert [len(page) for page in found] == sizes
    assert [id for page in found for id in page] == ids[::-1]


async def test_what_is_added_or_removed_meanwhile_does_not_disturb_the_next_page(store: Store) -> None:
    ids = [await ended_one(store, Status.COMPLETED) for _ in range(4)]
    first = await store.find(Query(limit=2))
    await add_one(store)
    await store.remove([first.jobs[-1].id])
    assert await found(store, after=first.next) == ids[1::-1]


async def test_a_found_job_is_the_job_without_its_log(store: Store) -> None:
    id = await run_retrying(store)
    [job] = (await store.find(Query())).jobs
    assert job == await job_of(store, id)
    assert len(job.attempts) == 1


async def test_nothing_comes_after_an_id_older_than_all(store: Store) -> None:
    await add_one(store)
    assert await found(store, after=NO_SUCH_ID) == []


async def test_jobs_are_found_by_how_long_ago_they_ended_or_if_not_ended_were_added(store: Store, clock: TestClock) -> None:
    waiting = await add_one(store, delay=seconds(1000))
    ended = await ended_one(store, Status.FAILED)
    clock.turn(60)
    await ended_one(store, Status.FAILED)
    assert await found(store, older_than=seconds(60)) == [ended, waiting.id]
    assert await found(store, older_than=seconds(60), statuses=frozenset({Status.FAILED})) == [ended]
    assert await found(store, older_than=seconds(61)) == []


async def test_payload_and_result_are_read_only_if_asked_for(store: Store) -> None:
    id = await ended_one(store, Status.COMPLETED, payload=b'{"a":1}')
    whole = await job_of(store, id)
    for payload, result in ((True, True), (True, False), (False, True), (False, False)):
        [job] = (await store.find(Query(payload=payload, result=result))).jobs
        assert job.payload_json == (whole.payload_json if payload else b"")
        assert job.result_json == (whole.result_json if result else b"")
        assert msgspec.structs.replace(job, payload_json=whole.payload_json, result_json=whole.result_json) == whole
    with pytest.raises(NotRead):
        _ = job.payload
    with pytest.raises(NotRead):
        _ = job.result


async def test_a_page_ends_before_it_holds_more_bytes_than_asked_for(store: Store) -> None:
    text = b'{"a":"' + b"x" * 1000 + b'"}'
    ids = await add_ids(store, *[{"payload": text} for _ in range(5)], {"payload": text, "queue": "last"})
    ids = ids[::-1]
    assert await pages(store, bytes=2 * len(text)) == [ids[:2], ids[2:4], ids[4:]]
    assert await pages(store, bytes=2 * len(text) - 1) == [[id] for id in ids]
    assert await pages(store, bytes=1) == [[id] for id in ids]  # one at least
    assert await pages(store, bytes=1, payload=False) == [ids]  # what is not read does not count
    assert await pages(store, bytes=2 * len(text), limit=1) == [[id] for id in ids]
    assert await pages(store, bytes=2 * len(text), queue="default") == [ids[1:3], ids[3:5], ids[5:]]


async def test_the_errors_of_attempts_count_among_the_bytes_of_a_page(store: Store) -> None:
    ids = [await ended_one(store, Status.FAILED) for _ in range(3)][::-1]
    size = sum(len(one.error or "") + len(one.traceback or "") for one in (await job_of(store, ids[0])).attempts)
    size += len((await job_of(store, ids[0])).error or "")
    assert size > 1
    assert await pages(store, bytes=2 * size, payload=False, result=False) == [ids[:2], ids[2:]]
    assert await pages(store, bytes=2 * size - 1, payload=False, result=False) == [[id] for id in ids]


async def test_a_search_that_ends_within_its_limit_of_time_is_answered(store: Store) -> None:
    id = (await add_one(store, tags=("x",))).id
    assert await found(store, tag="x", within=seconds(60)) == [id]
