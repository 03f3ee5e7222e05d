"""When delayed jobs are let go: the worked timeline, and what holds for every rate, backlog and sequence of looks."""

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from demora.core.job import Lane
from demora.core.pace import (
    USUAL_RAPID,
    Governs,
    Pace,
    PaceState,
    Rate,
    begin,
    forecast,
    look_at,
    next_release,
    plan,
)
from tests.builders import ms, seconds

NORMAL = Pace().rate(quiet=False)
RAPID = Pace(rapid=Rate(seconds(75), 5, seconds(15))).rate(quiet=True)
AT_ZERO = PaceState(cycle_at=0, step=0, next_at=120_000, seen_at=0)  # a cycle at 0:00 that is over but for its gap

spans = st.integers(0, 300).map(ms)
rates = st.builds(Rate, spans, st.integers(1, 6), spans).filter(lambda rate: rate.cycle > 0)
gaps_between_looks = st.lists(st.integers(0, 400), min_size=1, max_size=60)


def clock(*times: str) -> list[int]:
    """Minutes and seconds as milliseconds: `2:30`."""
    return [(int(minutes) * 60 + int(rest)) * 1000 for minutes, rest in (time.split(":") for time in times)]


def drive(rate: Rate, state: PaceState, dues: list[int], until: int) -> list[tuple[int, int]]:
    """Let jobs go as one that never sleeps too long does: (when, under which release time)."""
    waiting, used, now = sorted(dues), list[tuple[int, int]](), state.seen_at
    while now <= until:
        planned = plan(rate, state, now, [due for due in waiting if due <= now][: rate.reach])
        used += [(now, release_at) for release_at in planned.release_times]
        state, waiting = planned.state, waiting[len(planned.release_times) :]
        if not waiting:
            break
        now = max(look_at(state, now, waiting[0]), now + 1)
    return used


def look(rate: Rate, state: PaceState, looks: list[int], backlog: int = 10_000) -> tuple[list[tuple[int, int]], PaceState]:
    """Let jobs of a backlog go at any looks, so many milliseconds apart."""
    used, now = list[tuple[int, int]](), state.seen_at
    for apart in looks:
        now += apart
        planned = plan(rate, state, now, [0] * min(backlog - len(used), rate.reach))
        used += [(now, release_at) for release_at in planned.release_times]
        state = planned.state
    return used, state


def release_times_of(used: list[tuple[int, int]]) -> list[int]:
    return [release_at for _, release_at in used]


# The worked timeline


def test_the_sources_timeline_holds_to_the_second() -> None:
    used = drive(NORMAL, AT_ZERO, [15_000] * 4, until=300_000)
    assert used == [(at, at) for at in clock("2:00", "2:30", "3:00", "4:00")]


def test_without_history_the_first_release_is_immediate() -> None:
    used = drive(NORMAL, begin(0), [15_000] * 4, until=300_000)
    assert release_times_of(used) == clock("0:15", "0:45", "1:15", "2:15")


def test_the_rapid_timeline() -> None:
    used = drive(RAPID, begin(0), [0] * 7, until=300_000)
    assert release_times_of(used) == clock("0:00", "0:15", "0:30", "0:45", "1:00", "1:15", "1:30")


def test_after_an_idle_spell_the_first_release_is_immediate() -> None:
    used = drive(NORMAL, AT_ZERO, [1_000_000] * 2, until=2_000_000)
    assert release_times_of(used) == [1_000_000, 1_030_000]


def test_a_release_time_that_passed_while_nothing_was_held_is_lost() -> None:
    used = drive(NORMAL, begin(0), [0, 45_000, 45_000], until=300_000)
    assert release_times_of(used) == clock("0:00", "1:00", "2:00")


def test_the_usual_pace_is_that_of_the_sources() -> None:
    assert Pace() == Pace(seconds(120), 3, None, None, Governs.BOTH, ())
    assert NORMAL.apart == seconds(30)
    assert (Pace(rapid=USUAL_RAPID).rate(quiet=True), USUAL_RAPID.apart) == (Rate(seconds(30), 5), seconds(6))


def test_a_pace_governs_delayed_jobs_and_never_real_time_or_released_ones() -> None:
    assert {kind: set(kind.lanes) for kind in Governs} == {
        Governs.RETRIES: {Lane.RETRY},
        Governs.SCHEDULED: {Lane.SCHEDULED},
        Governs.BOTH: {Lane.SCHEDULED, Lane.RETRY},
    }


def test_a_pace_protects_its_own_queue_unless_others_are_named() -> None:
    assert Pace().protected("mail") == ("mail",)
    assert Pace(protect=("web", "api")).protected("mail") == ("web", "api")


def test_a_pace_without_a_rapid_rate_stays_normal() -> None:
    assert (Pace().rate(quiet=True), Pace().mode(quiet=True)) == (NORMAL, "normal")
    assert Pace(rapid=USUAL_RAPID).mode(quiet=True) == "rapid"


# How far apart


def test_a_gap_holds_what_it_says() -> None:
    for rate, times in (
        (Rate(seconds(10), 1), ["0:00", "0:10", "0:20"]),
        (Rate(seconds(10), 1, seconds(30)), ["0:00", "0:10", "0:20"]),
        (Rate(seconds(10), 5), ["0:00", "0:02", "0:04", "0:06", "0:08", "0:10"]),
        (Rate(seconds(120), 5), ["0:00", "0:24", "0:48", "1:12", "1:36", "2:00"]),
        (Rate(seconds(600), 2), ["0:00", "0:30", "10:00"]),
    ):
        assert release_times_of(drive(rate, begin(0), [0] * len(times), until=700_000)) == clock(*times)


@given(spans.filter(bool), st.integers(1, 50))
def test_a_stagger_that_was_not_given_fits(gap: timedelta, burst: int) -> None:
    rate = Rate(gap, burst)
    assert rate.fits
    assert rate.cycle == gap // ms(1)


# Gap shorter than burst and stagger


def test_a_gap_shorter_than_its_burst_gives_one_stagger_after_the_last_release_time() -> None:
    used = drive(Rate(seconds(20), 3, seconds(30)), begin(0), [0] * 5, until=300_000)
    assert release_times_of(used) == clock("0:00", "0:30", "1:00", "1:30", "2:00")


def test_without_a_stagger_a_burst_goes_at_once() -> None:
    used = drive(Rate(seconds(10), 3, timedelta(0)), begin(0), [0] * 5, until=300_000)
    assert release_times_of(used) == [0, 0, 0, 10_000, 10_000]


# Changes of mode and policy


def test_a_change_keeps_the_next_release_time_and_the_one_after_is_computed_anew() -> None:
    first = plan(NORMAL, begin(0), 0, [0])
    assert first.state.next_at == 30_000
    rapid = drive(RAPID, first.state, [0] * 4, until=100_000)
    assert release_times_of(rapid) == clock("0:30", "0:45", "1:00", "1:15")
    normal = drive(NORMAL, plan(RAPID, begin(0), 0, [0]).state, [0] * 3, until=300_000)
    assert release_times_of(normal) == clock("0:15", "0:45", "2:00")


def test_a_smaller_burst_ends_the_cycle_after_the_next_release_time() -> None:
    state = drive_state(NORMAL, begin(0), clock("0:00", "0:30"))
    used = drive(Rate(seconds(120), 1, seconds(30)), state, [0] * 2, until=600_000)
    assert release_times_of(used) == clock("1:00", "2:00")


def drive_state(rate: Rate, state: PaceState, times: list[int]) -> PaceState:
    for now in times:
        state = plan(rate, state, now, [0]).state
    return state


# Late looks and restarts


def test_release_times_that_passed_while_a_job_was_held_are_made_up_together() -> None:
    state = plan(NORMAL, begin(0), 0, [0]).state
    assert plan(NORMAL, state, 70_000, [0] * 6).release_times == tuple(clock("0:30", "1:00"))


def test_a_missed_cycle_is_never_made_up() -> None:
    state = plan(NORMAL, begin(0), 0, [0]).state
    late = plan(NORMAL, state, 1_000_000, [0] * 6)
    assert late.release_times == (1_000_000,)
    assert late.state.next_at == 1_030_000


def test_nothing_is_planned_for_nobody() -> None:
    assert plan(NORMAL, AT_ZERO, 500_000, []).release_times == ()


def test_a_state_survives_being_written_down() -> None:
    state = plan(NORMAL, begin(0), 0, [0]).state
    assert msgspec.json.decode(msgspec.json.encode(state), type=PaceState) == state


# Clocks that are stepped


def test_a_clock_set_back_holds_nobody_longer_than_the_next_release_time() -> None:
    day = 86_400_000
    state = plan(NORMAL, begin(day), day, [0]).state
    assert look_at(state, day - 7_200_000, 0) == day - 7_200_000
    moved = plan(NORMAL, state, day - 7_200_000, [0])
    assert moved.release_times == ()
    assert moved.state.next_at == day - 7_200_000 + 30_000


def test_a_clock_set_back_calls_nobody_before_a_job_is_due() -> None:
    state = plan(NORMAL, begin(9_000), 9_000, [0]).state
    assert look_at(state, 4_000, 6_500) == 6_500


def test_a_clock_set_forward_gives_one_release_and_no_flood() -> None:
    state = plan(NORMAL, begin(0), 0, [0]).state
    assert len(plan(NORMAL, state, 7_200_000, [0] * 6).release_times) == 1


# What holds always


@given(rates, gaps_between_looks)
def test_no_release_time_is_used_early(rate: Rate, looks: list[int]) -> None:
    used, _ = look(rate, begin(1000), looks)
    assert all(release_at <= now for now, release_at in used)


@given(rates, gaps_between_looks)
def test_no_release_time_is_used_twice(rate: Rate, looks: list[int]) -> None:
    release_times = release_times_of(look(rate, begin(1000), looks)[0])
    assert release_times == sorted(release_times)
    most = rate.burst if rate.apart == ms(0) else 1
    assert all(release_times.count(release_at) <= most for release_at in release_times)


@given(rates, gaps_between_looks)
def test_no_window_of_a_cycle_has_more_release_times_than_a_burst(rate: Rate, looks: list[int]) -> None:
    release_times = release_times_of(look(rate, begin(1000), looks)[0])
    for release_at in release_times:
        assert sum(release_at <= other < release_at + rate.cycle for other in release_times) <= rate.burst


@given(rates, st.lists(st.integers(0, 3000), max_size=12).map(sorted), st.integers(0, 3000))
def test_a_plan_says_what_is_left_if_only_some_of_its_jobs_can_go(rate: Rate, dues: list[int], now: int) -> None:
    planned = plan(rate, begin(1000), now, dues)
    assert len(planned.states) == len(planned.release_times)
    for jobs, state in enumerate(planned.states, 1):
        fewer = plan(rate, begin(1000), now, dues[:jobs])
        assert (fewer.release_times, fewer.state) == (planned.release_times[:jobs], state)


@given(rates, gaps_between_looks)
def test_one_look_never_lets_more_go_than_its_reach(rate: Rate, looks: list[int]) -> None:
    used, _ = look(rate, begin(1000), looks)
    assert all(sum(now == at for at, _ in used) < rate.reach for now, _ in used)


@given(rates, st.lists(st.integers(0, 3000), max_size=12).map(sorted), st.integers(1, 4), st.integers(0, 3000))
def test_a_plan_for_the_first_jobs_is_that_for_all_unless_it_lets_all_of_them_go(
    rate: Rate, dues: list[int], few: int, now: int
) -> None:
    held = [due for due in dues if due <= now][: rate.reach]
    narrow = plan(rate, begin(500), now, held[:few])
    assert len(narrow.release_times) == few or narrow == plan(rate, begin(500), now, held)


@given(rates, st.integers(0, 20))
def test_who_looks_in_time_uses_every_release_time_of_a_backlog(rate: Rate, late: int) -> None:
    """Looks so often that no cycle is missed use exactly the release times of one who looks at each."""
    pause = max(min(late, rate.cycle - 1), 1)
    used, _ = look(rate, begin(1000), [0] + [pause] * 60)
    end = 1000 + 60 * pause
    exact = release_times_of(drive(rate, begin(1000), [0] * (len(used) + rate.reach), until=end))
    assert release_times_of(used) == exact


@given(rates, gaps_between_looks, st.integers(0, 59))
def test_a_restart_changes_nothing(rate: Rate, looks: list[int], cut: int) -> None:
    whole, end = look(rate, begin(1000), looks)
    first, state = look(rate, begin(1000), looks[:cut])
    kept = msgspec.json.decode(msgspec.json.encode(state), type=PaceState)
    second, again = look(rate, kept, looks[cut:])
    assert (first + second, again) == (whole, end)


@given(rates, rates, gaps_between_looks, st.integers(0, 59))
def test_switching_uses_no_release_time_early_or_twice(one: Rate, other: Rate, looks: list[int], cut: int) -> None:
    first, state = look(one, begin(1000), looks[:cut])
    second, _ = look(other, state, looks[cut:])
    both = first + second
    assert all(release_at <= now for now, release_at in both)
    assert release_times_of(both) == sorted(release_times_of(both))
    if second and state.next_at > state.seen_at:
        assert second[0][1] >= state.next_at


@given(rates, gaps_between_looks, st.integers(-10_000, 10_000))
def test_a_stepped_clock_never_gives_more_than_a_look_may(rate: Rate, looks: list[int], step: int) -> None:
    _, state = look(rate, begin(100_000), looks)
    now = max(state.seen_at + step, 1)
    planned = plan(rate, state, now, [0] * rate.reach)
    assert len(planned.release_times) < rate.reach
    assert planned.state.next_at <= now + rate.cycle


@given(rates, st.integers(1, 30), gaps_between_looks)
def test_a_forecast_comes_true_if_nothing_changes(rate: Rate, nth: int, looks: list[int]) -> None:
    _, state = look(rate, begin(1000), looks)
    promised = forecast(rate, state, state.seen_at, nth)
    used = drive(rate, state, [0] * nth, until=promised + 1)
    assert (len(used), max(used[-1][1], state.seen_at)) == (nth, promised)


def test_the_next_release_is_the_first_release_time_at_which_the_job_is_due() -> None:
    state = plan(NORMAL, begin(0), 0, [0]).state
    assert [next_release(NORMAL, state, 1000, due) for due in clock("0:00", "0:30", "0:31", "1:01", "5:00")] == clock(
        "0:30", "0:30", "1:00", "2:00", "5:00"
    )


@given(rates, gaps_between_looks, st.lists(st.integers(0, 3000), min_size=1, max_size=5).map(sorted))
def test_the_next_release_comes_when_it_was_announced(rate: Rate, looks: list[int], dues: list[int]) -> None:
    _, state = look(rate, begin(1000), looks, backlog=5)
    dues = [state.seen_at + due for due in dues]
    announced = next_release(rate, state, state.seen_at, dues[0])
    assert drive(rate, state, dues, until=announced + 10_000)[0][0] == announced


def test_the_last_gap_is_between_the_last_two_releases() -> None:
    state = PaceState(cycle_at=0, step=0, next_at=0, seen_at=0)
    assert state.last_gap is None
    assert msgspec.structs.replace(state, released_at=500).last_gap is None
    assert msgspec.structs.replace(state, former_at=500).last_gap is None
    assert msgspec.structs.replace(state, released_at=700, former_at=500).last_gap == ms(200)
    assert msgspec.structs.replace(state, released_at=400, former_at=500).last_gap == ms(0)  # the clock was set back


def test_a_plan_notes_releases_only_where_there_are_any() -> None:
    rate, state = Rate(seconds(2), 1), begin(0)
    nothing = plan(rate, state, 100, []).state
    assert (nothing.seen_at, nothing.released_at, nothing.released) == (100, None, 0)
    first = plan(rate, state, 5000, [5000]).state
    assert (first.released_at, first.released, first.former_at) == (5000, 1, None)
    second = plan(rate, first, 9000, [9000]).state
    assert (second.released_at, second.released, second.former_at) == (9000, 2, 5000)
    assert plan(rate, second, 9500, []).state.released_at == 9000
