"""`diagnostics.dead_letters`: dead letters in groups of queue, type, error class and age."""

from typing import Any

from demora.core.filters import JobFilter
from demora.core.states import Status
from demora.core.verdict import Raised
from demora.store.jobs import Query
from demora.store.store import Store
from tests.builders import add_one, ended_one, job_of, run_one
from tests.clock import TestClock

MANY = 1000


async def dead(store: Store, error: str, **changes: Any) -> str:
    await add_one(store, **changes)
    return await run_one(store, Raised(error, permanent=True))


async def test_only_dead_letters_are_counted(store: Store) -> None:
    await add_one(store, queue="other")
    for status in (Status.COMPLETED, Status.CANCELLED):
        await ended_one(store, status)
    assert await store.diagnostics.dead_letters(MANY) == []


async def test_dead_letters_are_grouped_by_queue_type_and_error_class(store: Store) -> None:
    ids = [await dead(store, error) for error in ("KeyError: 'a'", "KeyError: 'b: c'")]
    mail = await dead(store, "KeyError", queue="mail", type="mail.send")
    other = await dead(store, "the server answered 503")
    groups = {(group.queue, group.type, group.error): group for group in await store.diagnostics.dead_letters(MANY)}
    assert {name: (group.jobs, group.sample_id) for name, group in groups.items()} == {
        ("default", "demo.echo", "KeyError"): (2, ids[1]),
        ("mail", "mail.send", "KeyError"): (1, mail),
        ("default", "demo.echo", "the server answered 503"): (1, other),
    }


async def test_the_jobs_of_a_group_are_found_by_its_error_class(store: Store) -> None:
    ids = {await dead(store, error) for error in ("x" * 201, "x" * 200 + "y: no")}
    [group] = await store.diagnostics.dead_letters(MANY)
    assert (group.error, group.jobs) == ("x" * 200, 2)
    page = await store.find(Query(JobFilter(frozenset({Status.FAILED}), type=group.type, error=group.error)))
    assert {job.id for job in page.jobs} == ids


async def test_dead_letters_are_grouped_by_age_with_the_first_and_the_last(store: Store, clock: TestClock) -> None:
    ids = []
    for passed in (6 * 24 * 3600, 23 * 3600, 1800, 1799, 0):  # after each failure
        ids.append(await dead(store, "KeyError"))
        clock.turn(passed)
    groups = {group.band: group for group in await store.diagnostics.dead_letters(MANY)}
    assert {band: (group.jobs, group.sample_id) for band, group in groups.items()} == {
        2: (1, ids[0]),
        1: (1, ids[1]),
        0: (3, ids[4]),
    }
    failed = [(await job_of(store, id)).completed_at for id in (ids[2], ids[4])]
    assert [groups[0].first_at, groups[0].last_at] == failed
    clock.turn(23 * 3600)
    assert {group.band for group in await store.diagnostics.dead_letters(MANY)} == {1, 2, 3}


async def test_only_the_newest_are_read(store: Store) -> None:
    ids = [await dead(store, f"Error{n}: no") for n in range(3)]
    groups = await store.diagnostics.dead_letters(2)
    assert {group.sample_id for group in groups} == set(ids[1:])
