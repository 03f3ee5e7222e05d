"""Statistics: bins, percentiles, and windows that are added up."""

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from demora.core import statistics
from demora.core.job import Lane
from demora.core.spans import from_ms
from demora.core.states import Status
from demora.core.statistics import (
    BOUNDS,
    HOUR,
    MINUTE,
    WINDOW_MS,
    Key,
    Percentiles,
    Ranking,
    Series,
    Stretch,
    Tally,
    bin_of,
    capped,
    largest,
    middle,
    percentiles,
    widened,
)

NOW = datetime(2026, 3, 29, 12, 34, 56, 789_000, tzinfo=UTC)


def test_a_bin_is_at_most_a_fifth_wide_and_its_middle_is_in_it() -> None:
    assert all(above / below < 1.2 for below, above in itertools.pairwise(BOUNDS))
    for number in range(len(BOUNDS)):
        assert bin_of(middle(number)) == number


def test_bounds_belong_to_the_bin_above_them() -> None:
    assert [bin_of(us) for us in (0, 99, 100, 118, 119, 10**15)] == [0, 0, 1, 1, 2, len(BOUNDS)]


@pytest.mark.parametrize("seed", range(5))
def test_a_percentile_is_off_by_a_tenth_at_most(seed: int) -> None:
    chance = random.Random(seed)
    values = [round(100 * 10 ** (chance.random() * 7)) for _ in range(997)]
    tally = Tally()
    for value in values:
        tally.add_times(Lane.REALTIME, value, 0)
    found = percentiles(tally.late, tally.latest)
    ordered = sorted(values)
    for said, rank in ((found.p50, 499), (found.p95, 948), (found.p99, 988)):
        assert said is not None
        assert abs(said * 1000 - ordered[rank - 1]) <= 0.1 * ordered[rank - 1]
    assert (found.count, found.max) == (997, max(values) / 1000)


def test_no_value_has_no_percentile_and_one_value_is_all_of_them() -> None:
    assert percentiles({}, 0) == Percentiles(0)
    tally = Tally()
    tally.add_times(Lane.RETRY, 1_000_000, 100)
    found = percentiles(tally.late, tally.latest)
    assert found.p50 == found.p99 == found.max == 1000.0


def test_a_start_before_the_due_time_is_not_late() -> None:
    tally = Tally()
    tally.add_times(Lane.SCHEDULED, -5, 0)
    assert (tally.delayed, tally.realtime, tally.latest) == ({0: 1}, {}, 0)


@pytest.mark.parametrize("lane", [Lane.REALTIME, Lane.SCHEDULED])
def test_successes_are_counted_together_as_one_by_one(lane: Lane) -> None:
    times = [(-5, 0), (0, 7), (-1, 3), (0, 7)]
    together, alone = Tally(), Tally()
    together.add_successes(lane, times)
    for late, ran in times:
        alone.add_run(Status.COMPLETED, counts=True)
        alone.add_times(lane, late, ran)
    assert together == alone


def test_each_run_is_counted_as_one_thing() -> None:
    tally = Tally()
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.RETRYING):
        tally.add_run(status, counts=True)
    for status in (Status.QUEUED, Status.RETRYING):
        tally.add_run(status, counts=False)
    tally.add_run(Status.FAILED, counts=False)  # no worker has a handler
    assert (tally.completed, tally.failed, tally.cancelled, tally.retried, tally.returned) == (1, 2, 1, 1, 2)


def test_windows_add_up_to_the_same_in_any_order_and_width() -> None:
    chance = random.Random(7)
    windows = []
    for _ in range(300):
        tally = Tally(completed=chance.randrange(3))
        tally.add_times(chance.choice(list(Lane)), chance.randrange(10**7), chance.randrange(10**6))
        at = chance.randrange(1000) * WINDOW_MS
        windows.append((Key(chance.choice("ab"), chance.choice("xy"), at, WINDOW_MS), tally))
    at_once = widened(windows, HOUR)
    chance.shuffle(windows)
    in_steps = widened(widened(widened(windows).items(), MINUTE).items(), HOUR)
    assert at_once == in_steps
    assert sum(tally.completed for _, tally in windows) == sum(tally.completed for tally in in_steps.values())


def test_adding_up_leaves_the_parts_alone() -> None:
    part = Tally(completed=1, run={3: 1})
    key = Key("a", "x", 0, WINDOW_MS)
    widened([(key, part), (key, Tally(completed=2, run={3: 5}))])
    assert part == Tally(completed=1, run={3: 1})


def test_a_window_that_is_wider_already_stays() -> None:
    key = Key("a", "x", 3_600_000, 3_600_000)
    assert widened([(key, Tally(completed=1))], MINUTE) == {key: Tally(completed=1)}


@pytest.mark.parametrize(("stretch", "count"), [(Stretch.HOUR, 60), (Stretch.DAY, 96), (Stretch.WEEK, 168)])
def test_a_stretch_has_its_points_up_to_the_step_that_is_now(stretch: Stretch, count: int) -> None:
    points = stretch.points(NOW)
    assert (len(points), points[-1] <= NOW < points[-1] + stretch.step) == (count, True)
    assert all(after - before == stretch.step for before, after in itertools.pairwise(points))
    assert points[0] == points[-1] - stretch.length + stretch.step
    assert points[-1] == from_ms(int(points[-1].timestamp()) * 1000)
    assert timedelta(0) < NOW - points[0] <= stretch.length


def series_of(windows: list[tuple[Key, Tally]], **names: Any) -> Series:
    series = Series(Stretch.HOUR, **names)
    series.begin(NOW)
    for key, tally in windows:
        if not series.take(key, tally):
            break
    series.end()
    return series


def test_a_series_adds_up_by_step_and_takes_only_the_names_it_was_asked_for() -> None:
    windows = [(Key(queue, "x", at * WINDOW_MS, WINDOW_MS), Tally(completed=1)) for queue in "abc" for at in (0, 5, 6)]
    series = series_of(windows, queues=["b"], types=[])
    assert {at: tally.completed for at, tally in series.all.items()} == {0: 6, 60_000: 3}
    assert {queue: [tally.completed for tally in steps.values()] for queue, steps in series.queues.items()} == {"b": [2, 1]}
    assert (series.types, series.crowded) == ({}, False)


def test_a_series_without_names_has_seen_enough_at_one_too_many() -> None:
    windows = [(Key(f"q{number}", "x", 0, WINDOW_MS), Tally(completed=1)) for number in range(5)]
    assert series_of(windows, most=5).crowded is False
    few = series_of(windows, most=3)
    assert (few.crowded, len(few.queues), few.all[0].completed) == (True, 3, 4)


def test_depths_are_added_up_over_queues_and_the_largest_of_a_step_is_kept() -> None:
    minute = 60_000
    windows = [
        (Key(queue, "", at, 10_000), Tally(ready=ready))
        for queue, at, ready in (("a", 0, 5), ("b", 0, 1), ("a", 10_000, 2), ("b", 10_000, 3), ("a", minute, 1))
    ]
    series = series_of(windows)
    assert series.deepest == {0: (6, 0), minute: (1, 0)}
    assert series.depths == {"a": {0: (5, 0), minute: (1, 0)}, "b": {0: (3, 0)}}


def test_a_ranking_forgets_small_names_and_keeps_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_RANKED", 10)
    ranking = Ranking()
    ranking.begin(NOW)
    for number in range(1000):
        ranking.take(Key(f"q{number}", f"t{number}", 0, WINDOW_MS), Tally(completed=1))
        ranking.take(Key("large", "wide", 0, WINDOW_MS), Tally(failed=1))
    assert len(ranking.queues) <= 20
    assert largest(ranking.queues, 1) == ["large"]
    assert (largest(ranking.types, 1), ranking.types["wide"]) == (["wide"], 1000)


def test_pairs_beyond_a_thousand_are_counted_as_other_and_known_ones_are_not() -> None:
    place = (WINDOW_MS, 0)
    known = {place: {(f"q{number}", "x") for number in range(1000)} | {("", "")}}
    windows = {
        Key("q5", "x", 0, WINDOW_MS): Tally(completed=1),
        Key("new", "x", 0, WINDOW_MS): Tally(completed=2),
        Key("newer", "y", 0, WINDOW_MS): Tally(completed=3),
        Key("new", "", 0, WINDOW_MS): Tally(ready=4),
        Key("", "", 0, WINDOW_MS): Tally(),
        Key("new", "x", WINDOW_MS, WINDOW_MS): Tally(completed=5),
    }
    found = {(key.queue, key.type, key.at): tally for key, tally in capped(windows, known).items()}
    assert found.keys() == {("q5", "x", 0), ("other", "other", 0), ("new", "", 0), ("", "", 0), ("new", "x", WINDOW_MS)}
    assert found["other", "other", 0].completed == 5


def test_how_late_runs_began_is_added_up_over_both_lanes() -> None:
    tally = Tally(realtime={1: 2, 2: 1}, delayed={2: 3, 4: 5})
    assert tally.late == {1: 2, 2: 4, 4: 5}


def test_every_end_of_a_run_counts_for_the_rank_of_its_type() -> None:
    for field in ("completed", "failed", "retried", "cancelled"):
        ranking = Ranking()
        ranking.begin(NOW)
        ranking.take(Key("mail", "a.b", 0, WINDOW_MS), Tally(**{field: 3}))
        assert (ranking.types, ranking.queues) == ({"a.b": 3}, {"mail": 3})
