"""find and count: filters and orders, page by page, and where a search stops."""

import msgspec
import pytest

from demora.core.filters import JobFilter, Sort, TimeRange
from demora.core.job import Priority, Unique
from demora.core.states import ENDED, WAITING, Status
from demora.core.verdict import Raised
from demora.engines.postgres.jobs import finding as postgres_finding
from demora.engines.sql import walks
from demora.engines.sqlite.jobs import finding as sqlite_finding
from demora.errors import Invalid, NotRead
from demora.store.jobs import Change, Count, Query
from demora.store.store import Store
from tests.builders import NO_SUCH_ID, add_ids, add_one, claim_one, ended_one, job_of, new_job, run_one, seconds
from tests.clock import TestClock


async def found(store: Store, **query) -> list[str]:
    return [job.id for job in (await store.find(asked(**query))).jobs]


def asked(**query) -> Query:
    """A query with the parts of its filter among its own."""
    if "tag" in query:
        query["tags"] = (query.pop("tag"),)
    filter = JobFilter(**{name: query.pop(name) for name in JobFilter.__struct_fields__ if name in query})
    return Query(filter, **query)


async def pages(store: Store, **query) -> list[list[str]]:
    """All pages, each as a list of ids."""
    pages, after = [], None
    while True:
        page = await store.find(asked(after=after, **query))
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


# Filters


async def test_jobs_are_found_by_a_prefix_of_their_type(store: Store) -> None:
    types = ("email.send", "email.check", "emails", "sms.send", "email.send")
    send, check, emails, sms, again = await add_ids(store, *[{"type": type} for type in types])
    assert await found(store, type="email.*") == [again, check, send]
    assert await found(store, type="e*") == [again, emails, check, send]
    assert await found(store, type="*") == [again, sms, emails, check, send]
    for sort in (Sort.DUE, None):
        assert await found(store, type="email.*", statuses=WAITING, sort=sort or Sort.DUE) == [send, check, again]
    assert await found(store, type="emailx*") == []


async def test_jobs_are_found_by_priority(store: Store) -> None:
    low, high, normal = await add_ids(store, *[{"priority": Priority[name]} for name in ("LOW", "HIGH", "NORMAL")])
    assert await found(store, priorities=frozenset({Priority.LOW, Priority.HIGH})) == [high, low]
    assert await found(store, priorities=frozenset({Priority.NORMAL})) == [normal]


async def test_a_job_must_carry_all_tags(store: Store) -> None:
    both, one, _, other = await add_ids(store, {"tags": ("a", "b")}, {"tags": ("b",)}, {}, {"tags": ("a", "c")})
    assert [await found(store, tags=tags) for tags in (("a", "b"), ("b", "a"))] == [[both], [both]]
    assert await found(store, tags=("b",)) == [one, both]
    assert await found(store, tags=("a",)) == [other, both]
    assert await found(store, tags=("a",), statuses=ENDED) == []


async def test_a_job_is_found_by_the_tags_that_it_has_now(store: Store) -> None:
    [id] = await add_ids(store, {"tags": ("a", "b")})
    await store.change(id, Change(tags=("b", "c")))
    assert [tag for tag in "abc" if await found(store, tags=(tag,))] == ["b", "c"]
    await store.change(id, Change(tags=()))
    assert [tag for tag in "abc" if await found(store, tags=(tag,))] == []
    await store.change(id, Change(tags=("d",)))
    await store.cancel([id])
    await store.remove([id])
    assert await found(store, tags=("d",)) == []


async def test_a_unique_job_is_found_by_the_tags_of_its_replacement(store: Store) -> None:
    first = await add_one(store, unique=Unique("k"), tags=("a",))
    await add_one(store, unique=Unique("k", replace=True), tags=("b",))
    assert (await found(store, tags=("a",)), await found(store, tags=("b",))) == ([], [first.id])


async def test_a_job_that_is_added_again_keeps_the_tags_that_it_has(store: Store) -> None:
    job = new_job(tags=("a",))
    await store.add([job])
    await store.change(job.id, Change(tags=("b",)))
    await store.add([job])
    assert (await found(store, tags=("a",)), await found(store, tags=("b",))) == ([], [job.id])


async def failed(store: Store, error: str, **changes) -> str:
    await add_one(store, max_retries=0, **changes)
    return await run_one(store, Raised(error))


@pytest.mark.parametrize("sort", [Sort.CREATED, Sort.ENDED])
async def test_dead_letters_are_found_by_the_class_of_their_error(store: Store, sort: Sort) -> None:
    texts = ("Timeout: 3 s", "TimeoutError: no", "Timeout", "Lost: Timeout: x", "Timeout: again")
    one, _, bare, lost, again = [await failed(store, text) for text in texts]
    dead = frozenset({Status.FAILED})
    assert await found(store, statuses=dead, error="Timeout", sort=sort) == [again, bare, one]
    assert await found(store, statuses=dead, error="Lost", sort=sort) == [lost]
    assert await found(store, statuses=dead, error="Time", sort=sort) == []


async def test_an_error_without_a_colon_has_a_class_of_200_characters(store: Store) -> None:
    id = await failed(store, "x" * 9000)
    assert await found(store, statuses=frozenset({Status.FAILED}), error="x" * 200, sort=Sort.ENDED) == [id]


async def test_jobs_are_found_by_text_in_their_name_or_error(store: Store) -> None:
    named = await add_one(store, name="Monthly Report", delay=seconds(9))
    typed = await add_one(store, type="report.send", delay=seconds(9))
    dead = await failed(store, "Oops: the REPORT is gone")
    assert await found(store, text="Report") == [dead, typed.id, named.id]
    assert await found(store, text="report is") == [dead]
    assert await found(store, text="%") == await found(store, text="_") == []


async def test_jobs_are_found_by_when_they_were_created(store: Store, clock: TestClock) -> None:
    ids, times = [], []
    for _ in range(4):
        times.append(clock.now())
        ids.append((await add_one(store)).id)
        clock.turn(60)
    assert await found(store, created=TimeRange(since=times[2])) == [ids[3], ids[2]]
    assert await found(store, created=TimeRange(until=times[2])) == [ids[1], ids[0]]
    both = TimeRange(times[1], times[3])
    assert await found(store, created=both) == [ids[2], ids[1]]
    assert await pages(store, created=both, limit=1) == [[ids[2]], [ids[1]]]
    assert await found(store, created=both, statuses=WAITING, sort=Sort.DUE) == [ids[1], ids[2]]


async def test_a_range_of_creation_reads_only_the_rows_about_it(store: Store, clock: TestClock, monkeypatch) -> None:
    monkeypatch.setattr(walks, "DISORDER", 2)
    for engine in (sqlite_finding, postgres_finding):
        monkeypatch.setattr(engine, "MOST_READ", 9)
    ids, times = [], []
    for _ in range(40):
        times.append(clock.now())
        ids.append((await add_one(store)).id)
        clock.turn(1)
    for n in (0, 1, 17, 36):
        page = await store.find(asked(created=TimeRange(times[n], times[n + 3])))
        assert ([job.id for job in page.jobs], page.complete) == (ids[n : n + 3][::-1], True)


# Orders


async def test_waiting_jobs_are_sorted_by_when_they_are_due(store: Store) -> None:
    delays = [
        {"delay": seconds(n), "queue": "ab"[n % 2], "priority": Priority(n % 4), "type": f"t.{n % 3}"}
        for n in (5, 1, 4, 2, 3)
    ]
    ids = await add_ids(store, *delays)
    in_order = [ids[n] for n in (1, 3, 4, 2, 0)]
    assert await found(store, statuses=WAITING, sort=Sort.DUE) == in_order
    for size in (1, 2, 5):
        joined = [id for page in await pages(store, statuses=WAITING, sort=Sort.DUE, limit=size) for id in page]
        assert joined == in_order
    assert await found(store, statuses=WAITING, queue="b", sort=Sort.DUE) == [ids[1], ids[4], ids[0]]
    assert await found(store, statuses=WAITING, type="t.2", sort=Sort.DUE) == [ids[3], ids[0]]
    assert await found(store, statuses=WAITING, type="t.*", sort=Sort.DUE, limit=2) == in_order[:2]


async def test_a_range_of_due_times_is_a_part_of_the_list(store: Store, clock: TestClock) -> None:
    now = clock.now()
    ids = await add_ids(store, *[{"delay": seconds(n)} for n in range(1, 6)])
    due = TimeRange(now + seconds(2), now + seconds(4))
    assert await found(store, statuses=WAITING, due=due, sort=Sort.DUE) == ids[1:3]
    assert await found(store, statuses=WAITING, due=due) == ids[2:0:-1]


async def test_equal_times_are_sorted_by_the_order_of_adding_and_paged_without_gap(store: Store) -> None:
    ids = await add_ids(store, *[{"delay": seconds(5), "queue": "ab"[n % 2]} for n in range(7)])
    assert [id for page in await pages(store, statuses=WAITING, sort=Sort.DUE, limit=2) for id in page] == ids
    await store.cancel(ids)
    assert [id for page in await pages(store, statuses=ENDED, sort=Sort.ENDED, limit=2) for id in page] == ids[::-1]


async def test_ended_jobs_are_sorted_by_when_they_ended(store: Store, clock: TestClock) -> None:
    start, ids = clock.now(), []
    for status, queue in ((Status.FAILED, "b"), (Status.COMPLETED, "a"), (Status.CANCELLED, "a"), (Status.FAILED, "a")):
        ids.append(await ended_one(store, status, queue=queue, type=f"{queue}.x"))
        clock.turn(10)
    assert await found(store, statuses=ENDED, sort=Sort.ENDED) == ids[::-1]
    assert await pages(store, statuses=ENDED, sort=Sort.ENDED, limit=3) == [ids[:0:-1], ids[:1]]
    assert await found(store, statuses=frozenset({Status.FAILED}), sort=Sort.ENDED) == [ids[3], ids[0]]
    assert await found(store, statuses=ENDED, queue="a", sort=Sort.ENDED) == [ids[3], ids[2], ids[1]]
    assert await found(store, statuses=ENDED, type="a.x", sort=Sort.ENDED) == [ids[3], ids[2], ids[1]]
    assert await found(store, statuses=ENDED, type="*", sort=Sort.ENDED) == ids[::-1]
    ended = TimeRange(start + seconds(10), start + seconds(30))
    assert await found(store, statuses=ENDED, ended=ended, sort=Sort.ENDED) == [ids[2], ids[1]]
    assert await found(store, statuses=ENDED, ended=ended) == [ids[2], ids[1]]


async def test_jobs_that_are_retried_are_found_among_others_that_wait(store: Store) -> None:
    retried = await run_retrying(store)
    await add_one(store, delay=seconds(1))
    again = frozenset({Status.RETRYING})
    assert await found(store, statuses=again, sort=Sort.DUE) == [retried]
    assert await found(store, statuses=again, queue="default", sort=Sort.DUE) == [retried]
    assert await found(store, statuses=again, queue="other", sort=Sort.DUE) == []
    assert await found(store, statuses=again, type="t", sort=Sort.DUE) == await found(store, statuses=again, type="t")


@pytest.mark.parametrize(("sort", "statuses"), [(Sort.DUE, WAITING), (Sort.ENDED, ENDED), (Sort.CREATED, WAITING)])
async def test_the_cursor_of_a_list_in_another_order_is_refused(
    store: Store, sort: Sort, statuses: frozenset[Status]
) -> None:
    with pytest.raises(Invalid, match="another order"):
        await found(store, statuses=statuses, sort=sort, after="1.1" if sort is Sort.CREATED else NO_SUCH_ID)


# Limits


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search reads five jobs at most."""
    for engine in (sqlite_finding, postgres_finding):
        monkeypatch.setattr(engine, "MOST_READ", 5)


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("sort", Sort)
async def test_a_search_that_reads_too_many_jobs_stops_and_goes_on_where_it_stopped(store: Store, sort: Sort) -> None:
    ids = await add_ids(store, *[{"delay": seconds(n), "name": "x" if n in (0, 7, 11) else "y"} for n in range(12)])
    if sort is Sort.ENDED:
        await store.cancel(ids)
    wanted = [ids[n] for n in (0, 7, 11)]
    statuses = {Sort.DUE: WAITING, Sort.ENDED: ENDED, Sort.CREATED: frozenset[Status]()}[sort]
    seen, after, complete = [], None, []
    for _ in range(4):
        page = await store.find(asked(statuses=statuses, text="x", sort=sort, after=after, limit=2))
        seen += [job.id for job in page.jobs]
        complete.append(page.complete)
        after = page.next
        if after is None:
            break
    assert seen == (wanted if sort is Sort.DUE else wanted[::-1])
    assert complete == [False, False, True]


@pytest.mark.parametrize("sort", Sort)
async def test_a_search_reads_on_until_its_page_is_full(store: Store, sort: Sort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_finding, "FIRST_CHUNK", 2)
    ids = await add_ids(store, *[{"delay": seconds(n), "name": "x" if n in (0, 7, 11) else "y"} for n in range(12)])
    if sort is Sort.ENDED:
        await store.cancel(ids)
    statuses = {Sort.DUE: WAITING, Sort.ENDED: ENDED, Sort.CREATED: frozenset[Status]()}[sort]
    wanted = [ids[n] for n in (0, 7, 11)][:: 1 if sort is Sort.DUE else -1]
    assert await pages(store, statuses=statuses, text="x", sort=sort, limit=2) == [wanted[:2], wanted[2:]]


async def test_a_search_that_takes_too_long_stops(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (sqlite_finding, postgres_finding):
        monkeypatch.setattr(engine, "MOST_TIME", seconds(-1))
    monkeypatch.setattr(sqlite_finding, "TIMED_AFTER", 2)
    monkeypatch.setattr(postgres_finding, "FIRST_CHUNK", 2)
    ids = await add_ids(store, *[{} for _ in range(5)])
    page = await store.find(asked(text="none", limit=1))
    assert (page.jobs, page.next, page.complete) == ([], ids[3], False)


async def test_jobs_are_counted(store: Store) -> None:
    await add_ids(store, *[{"queue": "ab"[n % 2]} for n in range(7)])
    assert await store.count(asked(queue="a")) == Count(4)
    assert await store.count(asked(statuses=WAITING, queue="b", sort=Sort.DUE)) == Count(3)
    assert await store.count(asked(queue="c")) == Count(0)


@pytest.mark.usefixtures("few_at_once")
async def test_counting_stops_at_its_limit_and_says_so(store: Store) -> None:
    await add_ids(store, *[{} for _ in range(7)])
    assert await store.count(asked(statuses=WAITING, sort=Sort.DUE)) == Count(5, complete=False)
    assert await store.count(asked(text="none")) == Count(0, complete=False)
