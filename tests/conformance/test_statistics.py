"""Statistics: every settled run and every release is counted once, by queue, type and window, whoever counts and merges."""

import asyncio
import itertools
import random
from collections import Counter
from datetime import timedelta

import pytest

from demora.core.job import Lane
from demora.core.pace import Pace, request_of
from demora.core.spans import MICROSECOND, to_ms
from demora.core.states import Status
from demora.core.statistics import Key, Stretch, Tally, bin_of, percentiles, widened
from demora.core.verdict import Cancelled, HandedBack, Outcome, Raised, Snoozed, Succeeded
from demora.store.jobs import Query
from demora.store.statistics import Depth
from demora.store.store import Store
from tests.builders import (
    BROKEN,
    DONE,
    add_ids,
    add_one,
    claim,
    claim_one,
    job_of,
    ms,
    new_job,
    seconds,
    settle,
    settle_lapsed,
    windows_of,
)
from tests.clock import TestClock


async def read(store: Store, stretch: Stretch = Stretch.HOUR) -> dict[Key, Tally]:
    return widened(await windows_of(store, stretch), stretch.step)


async def total(store: Store, stretch: Stretch = Stretch.HOUR) -> Tally:
    """What all windows of a stretch count together."""
    tally = Tally()
    for one in (await read(store, stretch)).values():
        tally.add(one)
    return tally


async def run_one(store: Store, outcome: Outcome = DONE, ran: timedelta = timedelta(0)) -> None:
    await add_one(store)
    await settle(store, await claim_one(store), outcome, ran=ran)


async def merge_all(store: Store) -> None:
    while (await store.statistics.merge(limit=50)).more:
        pass


async def test_nothing_is_counted_before_a_run_is_settled(store: Store) -> None:
    await add_ids(store, {}, {}, {})
    await claim(store, 2)
    assert await read(store) == {}


@pytest.mark.parametrize(
    ("outcome", "field"),
    [
        (DONE, "completed"),
        (BROKEN, "failed"),
        (Raised("no"), "retried"),
        (Cancelled("no need"), "cancelled"),
        (HandedBack(), "returned"),
        (Snoozed(ms(5)), "returned"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
async def test_a_run_is_counted_by_what_became_of_its_job(store: Store, outcome: Outcome, field: str) -> None:
    await run_one(store, outcome)
    tally = await total(store)
    ends = {name: getattr(tally, name) for name in ("completed", "failed", "retried", "cancelled", "returned")}
    assert ends == {**dict.fromkeys(ends, 0), field: 1}


async def test_a_run_that_was_no_attempt_has_no_times(store: Store) -> None:
    await run_one(store, HandedBack())
    tally = await total(store)
    assert (tally.late, tally.run) == ({}, {})


async def test_a_lapse_is_counted_and_has_no_times(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await claim_one(store)
    clock.turn(31)
    await settle_lapsed(store)
    tally = await total(store)
    assert (tally.retried, tally.late, tally.run) == (1, {}, {})


@pytest.mark.parametrize("outcome", [DONE, BROKEN], ids=["success", "failure"])
async def test_a_settlement_without_a_lease_counts_nothing(store: Store, outcome: Outcome) -> None:
    await add_one(store)
    job = await claim_one(store)
    await settle(store, job, DONE)
    before = await read(store)
    assert await settle(store, job, outcome) is None
    assert await read(store) == before


async def test_a_run_that_a_cancel_ends_is_counted_as_cancelled(store: Store) -> None:
    added = await add_one(store)
    job = await claim_one(store)
    await store.cancel([added.id])
    await settle(store, job, Raised("no"))
    tally = await total(store)
    assert (tally.cancelled, tally.retried) == (1, 0)


async def test_lateness_counts_from_the_due_time_and_run_time_to_the_microsecond(store: Store, clock: TestClock) -> None:
    await add_one(store)
    clock.turn(2)
    job = await claim_one(store)
    await settle(store, job, DONE, ran=timedelta(microseconds=250))
    tally = await total(store)
    assert (tally.realtime, tally.delayed) == ({bin_of(2_000_000): 1}, {})
    assert (tally.run, tally.latest, tally.longest) == ({bin_of(250): 1}, 2_000_000, 250)


async def test_a_retry_is_late_from_its_own_due_time_and_is_not_real_time(store: Store, clock: TestClock) -> None:
    await add_one(store)
    await settle(store, await claim_one(store), Raised("no"))
    clock.turn(3)
    await settle(store, await claim_one(store), DONE)
    tally = await total(store)
    assert (tally.realtime, tally.delayed) == ({bin_of(0): 1}, {bin_of(2_000_000): 1})


async def test_the_lateness_of_a_failed_attempt_is_that_of_its_start(store: Store, clock: TestClock) -> None:
    """The settlement gives the job a new due time, which is not the one that the attempt was late for."""
    await add_one(store)
    clock.turn(60)
    await settle(store, await claim_one(store), Raised("no"))
    assert (await total(store)).latest == 60_000_000


async def test_queues_and_types_are_counted_apart(store: Store) -> None:
    await store.add([new_job(queue=queue, type=type) for queue, type in itertools.product("ab", ("x", "y"))])
    jobs = (await claim(store, 10)).jobs
    for job in jobs:
        await settle(store, job, DONE)
    found = {(key.queue, key.type): tally.completed for key, tally in (await read(store)).items()}
    assert found == dict.fromkeys(itertools.product("ab", ("x", "y")), 1)


async def test_each_run_is_in_the_window_in_which_it_was_settled(store: Store, clock: TestClock) -> None:
    for _ in range(5):
        await run_one(store)
        clock.turn(60)
    windows = await read(store)
    assert [key.at for key in sorted(windows, key=lambda key: key.at)] == [
        to_ms(clock.now()) - to_ms(clock.now()) % 60_000 - n * 60_000 for n in (5, 4, 3, 2, 1)
    ]
    assert {tally.completed for tally in windows.values()} == {1}


# Merging


async def test_a_merge_changes_no_sum(store: Store, clock: TestClock) -> None:
    for _ in range(30):
        await run_one(store, ran=ms(random.Random(1).randrange(500)))
        clock.turn(7)
    before = await read(store)
    await merge_all(store)
    assert await read(store) == before
    await merge_all(store)
    assert await read(store) == before


async def test_two_processes_are_added_up(pair: tuple[Store, Store], clock: TestClock) -> None:
    for store in pair:
        await run_one(store)
    assert (await total(pair[0])).completed == 2
    clock.turn(60)
    await merge_all(pair[1])
    assert (await total(pair[0])).completed == (await total(pair[1])).completed == 2


async def test_what_comes_late_to_a_merged_window_is_added(pair: tuple[Store, Store], clock: TestClock) -> None:
    await run_one(pair[0])
    clock.turn(60)
    await merge_all(pair[0])
    clock.turn(-60)
    await run_one(pair[1])
    clock.turn(60)
    await merge_all(pair[0])
    assert [tally.completed for tally in (await read(pair[0])).values()] == [2]


async def test_concurrent_merges_count_nothing_twice(pair: tuple[Store, Store], clock: TestClock) -> None:
    for _ in range(20):
        await run_one(pair[0])
        await run_one(pair[1])
        clock.turn(10)
    clock.turn(60)
    await asyncio.gather(*(merge_all(store) for store in pair * 3))
    assert (await total(pair[0])).completed == 40


async def test_old_windows_are_widened_and_then_forgotten(store: Store, clock: TestClock) -> None:
    for _ in range(6):
        await run_one(store)
        clock.turn(10)
    for passed, week in ((0, 6), (2 * 3600, 6), (2 * 86400, 6), (7 * 86400, 0)):
        clock.turn(passed)
        await merge_all(store)
        assert (await total(store, Stretch.WEEK)).completed == week
    clock.turn(-7 * 86400)  # to a time at which they would still be shown
    assert await read(store, Stretch.WEEK) == {}


async def test_the_windows_of_the_last_hour_and_of_the_last_day_stay_narrow(store: Store, clock: TestClock) -> None:
    await run_one(store)
    for passed, width in ((3600, 10), (120, 60), (86_400 - 3720, 60), (2 * 3600, 3600)):
        clock.turn(passed)
        await merge_all(store)
        [(key, _)] = await windows_of(store, Stretch.WEEK)
        assert key.width == width * 1000


async def test_a_stretch_has_nothing_that_is_older(store: Store, clock: TestClock) -> None:
    await run_one(store)
    clock.turn(3600)
    assert await read(store) == {}
    assert (await total(store, Stretch.DAY)).completed == 1
    clock.turn(86400)
    await merge_all(store)
    assert await read(store, Stretch.DAY) == {}
    assert (await total(store, Stretch.WEEK)).completed == 1


async def test_a_window_names_a_thousand_pairs_and_counts_the_rest_as_other(store: Store, clock: TestClock) -> None:
    for first in range(0, 1100, 100):
        await store.add([new_job(queue=f"q{number:04}") for number in range(first, first + 100)])
        for job in (await claim(store, 100)).jobs:
            await settle(store, job, DONE)
    clock.turn(60)
    await merge_all(store)
    windows = await read(store)
    assert len(windows) == 1001
    assert sum(tally.completed for tally in windows.values()) == 1100
    [rest] = [tally.completed for key, tally in windows.items() if (key.queue, key.type) == ("other", "other")]
    assert rest == 100
    clock.turn(2 * 86400)
    await merge_all(store)
    wide = await read(store, Stretch.WEEK)
    assert (len(wide), sum(tally.completed for tally in wide.values())) == (1001, 1100)


# Releases


async def test_a_release_is_counted_with_how_long_the_pace_held_the_job(store: Store, clock: TestClock) -> None:
    await store.paces.set("default", request_of(Pace(gap=seconds(60), burst=1, rapid=None)), by="ann")
    await add_ids(store, *[{"delay": ms(1)}] * 3)
    clock.turn(ms=1)
    await store.paces.release()
    clock.turn(60)
    await store.paces.release()
    tally = await total(store)
    assert (tally.released, tally.held, tally.longest_held) == (2, {bin_of(0): 1, bin_of(60_000_000): 1}, 60_000_000)


async def test_a_claim_that_releases_counts_as_well(store: Store, clock: TestClock) -> None:
    await store.paces.set("default", request_of(Pace(gap=seconds(60), burst=1, rapid=None)), by="ann")
    await add_ids(store, *[{"delay": ms(1)}] * 2)
    clock.turn(1)
    for _ in range(3):
        claimed = await claim(store, 5)
        if claimed.jobs:
            break
    tally = await total(store)
    assert (tally.released, tally.longest_held) == (1, 999_000)
    assert (await job_of(store, claimed.jobs[0].lease.id)).lane is Lane.RELEASED


# Depths, added jobs, what is under way


async def test_one_merge_a_minute_asks_for_a_sample(pair: tuple[Store, Store], clock: TestClock) -> None:
    asked = [(await store.statistics.merge(limit=50)).sample for store in (*pair, *pair)]
    clock.turn(60)
    asked += [(await store.statistics.merge(limit=50)).sample for store in pair]
    assert asked == [True, False, False, False, True, False]


async def test_the_largest_depth_of_a_window_is_kept(store: Store, clock: TestClock) -> None:
    for depth in (Depth(5, 2), Depth(9, 1), Depth(3, 0)):
        await store.statistics.sample({"default": depth})
    [(key, tally)] = (await read(store)).items()
    assert (key.queue, key.type, tally.ready, tally.waiting) == ("default", "", 9, 2)
    clock.turn(2 * 86400)
    await merge_all(store)
    assert (await total(store, Stretch.WEEK)).ready == 9


async def test_added_jobs_are_counted_by_their_ids(store: Store) -> None:
    await add_ids(store, {}, {}, {})
    [job, *_] = (await store.find(Query())).jobs
    at = int(job.id.replace("-", "")[:12], 16)
    minute = at - at % 60_000
    starts = [job.created_at.fromtimestamp((minute + n * 60_000) / 1000, job.created_at.tzinfo) for n in (-1, 0, 1)]
    counts = await store.statistics.added(starts, timedelta(minutes=1))
    assert sum(counts) == 3
    assert counts[1] >= 1


async def test_what_is_under_way_is_by_worker_and_queue(store: Store, clock: TestClock) -> None:
    await add_ids(store, {}, {}, {})
    await claim(store, 2)
    clock.turn(5)
    standing = await store.statistics.standing()
    assert standing.running == {"ann": 2}
    assert standing.due_since == {"default": clock.now() - seconds(5)}


# The oracle


@pytest.mark.parametrize("seed", [1, 2])
async def test_statistics_agree_with_the_rows_of_the_jobs(pair: tuple[Store, Store], clock: TestClock, seed: int) -> None:
    """A random load on two processes that merge in between, beside what the jobs themselves say."""
    chance = random.Random(seed)
    runs = Counter[tuple[str, str, str]]()
    lates, rans = list[int](), list[int]()
    for _ in range(60):
        store = chance.choice(pair)
        await store.add([new_job(queue=chance.choice("ab"), type=chance.choice("xy"), max_retries=1) for _ in range(3)])
        clock.turn(chance.choice([0, 1, 7, 40]), ms=chance.randrange(1000))
        for job in (await claim(store, chance.randrange(1, 6))).jobs:
            due = (await job_of(store, job.lease.id)).due_at
            clock.turn(ms=chance.randrange(50))
            ran = timedelta(milliseconds=chance.randrange(5000)) * chance.random()
            outcome = chance.choice([DONE, DONE, Raised("no"), Succeeded(b"1"), HandedBack()])
            status = await settle(store, job, outcome, ran=ran)
            after = await job_of(store, job.lease.id)
            if isinstance(outcome, HandedBack):
                runs[job.queue, job.type, "returned"] += 1
                continue
            assert status is not None
            end = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.RETRYING: "retried"}[status]
            runs[job.queue, job.type, end] += 1
            started = after.attempts[-1].started_at
            assert started is not None
            lates.append(max(to_ms(started) - to_ms(due), 0) * 1000)
            rans.append(ran // MICROSECOND)
        if chance.random() < 0.3:
            await store.statistics.merge(limit=chance.choice([3, 50]))
    windows = await read(pair[0], Stretch.DAY)
    counted = Counter[tuple[str, str, str]]()
    for key, tally in windows.items():
        for end in ("completed", "failed", "retried", "returned"):
            counted[key.queue, key.type, end] += getattr(tally, end)
    assert +counted == runs
    together = await total(pair[0], Stretch.DAY)
    assert together.late == Counter(map(bin_of, lates))
    assert together.run == Counter(map(bin_of, rans))
    assert (together.latest, together.longest) == (max(lates), max(rans))
    said, true = percentiles(together.run, together.longest).p99, sorted(rans)[-(-len(rans) * 99 // 100) - 1] / 1000
    assert said is not None
    assert abs(said - true) <= 0.1 * true
    assert widened(windows.items()) == windows
