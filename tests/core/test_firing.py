"""Which fire times fire: prompt ones, late ones by policy, none of a pause, and what overlap makes of them."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.schedules.firing import (
    MOST_RECORDED,
    PROMPT,
    Decision,
    FireOutcome,
    Previous,
    Progress,
    apply_overlap,
    begin,
    decide,
    first_to_look,
    foreseen,
)
from demora.core.schedules.schedule import Missed, Overlap, Schedule, fire_times_between, next_fire
from tests.builders import ms, seconds

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRED, SKIPPED, MISSED, REPLACED = FireOutcome.FIRED, FireOutcome.SKIPPED, FireOutcome.MISSED, FireOutcome.REPLACED
RUNS, WAITS = Previous(claimed=True), Previous(waiting=True)


def schedule(**changes: Any) -> Schedule:
    usual = {"name": "nightly", "type": "report.build", "payload": b"{}", "recorded_at": NOON}
    return Schedule(**{**usual, **({} if {"cron", "at"} & changes.keys() else {"every": MINUTE}), **changes})


def after(span: timedelta, previous: Previous = Previous(), **changes: Any) -> Decision:  # noqa: B008
    """What is decided so long after noon about a schedule that was recorded at noon."""
    one = schedule(**changes)
    return decide(one, begin(one, NOON), NOON + span, previous)


def minutes(decision: Decision, outcome: FireOutcome) -> list[int]:
    return [(one.slot_at - NOON) // MINUTE for one in decision.fire_times if one.outcome is outcome]


# Prompt fire times


def test_nothing_fires_before_its_fire_time() -> None:
    early = after(MINUTE - ms(1))
    assert early == Decision((), Progress(NOON, NOON + MINUTE))


@pytest.mark.parametrize("missed", Missed)
def test_a_fire_time_fires_at_its_time_and_up_to_ten_seconds_later_whatever_the_policy(missed: Missed) -> None:
    for late in (ms(0), PROMPT):
        decision = after(MINUTE + late, missed=missed)
        assert decision.fired == [NOON + MINUTE]
        assert decision.progress == Progress(NOON + MINUTE + late, NOON + 2 * MINUTE)


def test_a_fire_time_that_is_later_than_ten_seconds_is_missed() -> None:
    decision = after(MINUTE + PROMPT + ms(1), missed=Missed.SKIP)
    assert (minutes(decision, FIRED), minutes(decision, MISSED)) == ([], [1])


def test_several_prompt_fire_times_all_fire() -> None:
    decision = after(seconds(5), every=seconds(1), missed=Missed.SKIP)
    assert decision.fired == [NOON + seconds(n) for n in range(1, 6)]


# Late fire times


@pytest.mark.parametrize(
    ("changes", "fired", "missed"),
    [
        ({"missed": Missed.SKIP}, [], [1, 2, 3, 4, 5]),
        ({"missed": Missed.LAST}, [5], [1, 2, 3, 4]),
        ({"missed": Missed.ALL}, [1, 2, 3, 4, 5], []),
        ({"missed": Missed.ALL, "missed_limit": 2}, [4, 5], [1, 2, 3]),
        ({"missed": Missed.ALL, "late_limit": seconds(89)}, [5], [1, 2, 3, 4]),
        ({"missed": Missed.LAST, "late_limit": seconds(29)}, [], [1, 2, 3, 4, 5]),
        ({"missed": Missed.LAST, "late_limit": seconds(30)}, [5], [1, 2, 3, 4]),
    ],
)
def test_late_fire_times_fire_by_policy(changes: dict[str, Any], fired: list[int], missed: list[int]) -> None:
    decision = after(5 * MINUTE + seconds(30), **changes)
    assert (minutes(decision, FIRED), minutes(decision, MISSED)) == (fired, missed)


def test_a_prompt_fire_time_fires_beside_the_late_one() -> None:
    decision = after(5 * MINUTE, missed=Missed.LAST)
    assert (minutes(decision, FIRED), minutes(decision, MISSED)) == ([4, 5], [1, 2, 3])


def test_a_pause_and_the_time_before_the_creation_have_no_missed_fire_times() -> None:
    old = schedule(start_at=NOON - DAY, missed=Missed.ALL)
    assert decide(old, begin(old, NOON), NOON + ms(1)).fire_times == ()
    paused = schedule(enabled=False, missed=Missed.ALL)
    stopped = begin(paused, NOON)
    assert stopped.next_at is None
    assert decide(paused, stopped, NOON + HOUR) == Decision((), stopped)
    resumed = schedule(missed=Missed.ALL)
    assert minutes(decide(resumed, begin(resumed, NOON + HOUR), NOON + HOUR + MINUTE), FIRED) == [61]


def test_a_schedule_that_has_ended_fires_its_last_fire_time_and_has_no_next() -> None:
    decision = after(HOUR, end_at=NOON + MINUTE)
    assert (minutes(decision, FIRED), decision.progress.next_at) == ([1], None)
    ended = schedule(end_at=NOON + MINUTE)
    assert decide(ended, decision.progress, NOON + DAY) == Decision((), decision.progress)


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    progress = after(HOUR).progress
    assert decide(schedule(), progress, NOON + MINUTE) == Decision((), progress)


@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("timing", [{"every": seconds(1)}, {"cron": "* * * * * *", "timezone": "Europe/Madrid"}])
def test_a_schedule_per_second_that_slept_a_year_is_decided_quickly(missed: Missed, timing: dict[str, Any]) -> None:
    began = time.process_time()
    decision = after(365 * DAY, **timing, missed=missed, missed_limit=1000, late_limit=365 * DAY)
    assert time.process_time() - began < 5
    assert len(decision.fired) == 11 + {Missed.SKIP: 0, Missed.LAST: 1, Missed.ALL: 1000}[missed]
    assert len(decision.fire_times) - len(decision.fired) == MOST_RECORDED == 100
    assert decision.progress.next_at == NOON + 365 * DAY + seconds(1)


@given(
    looks=st.lists(st.integers(1, 200_000), min_size=1, max_size=20),
    every=st.integers(1000, 90_000),
    missed=st.sampled_from(Missed),
    limit=st.integers(1, 5),
)
def test_every_fire_time_is_decided_once_whenever_the_scheduler_looks(
    looks: list[int], every: int, missed: Missed, limit: int
) -> None:
    one = schedule(every=ms(every), missed=missed, missed_limit=limit)
    progress, now, seen = begin(one, NOON), NOON, list[datetime]()
    for apart in looks:
        now += ms(apart)
        decision = decide(one, progress, now)
        for fire_time in decision.fire_times:
            assert fire_time.slot_at <= now
            assert fire_time.outcome is FIRED or now - fire_time.slot_at > PROMPT
        late = [fire_time for fire_time in decision.fired if now - fire_time > PROMPT]
        assert len(late) <= {Missed.SKIP: 0, Missed.LAST: 1, Missed.ALL: limit}[missed]
        seen += [fire_time.slot_at for fire_time in decision.fire_times]
        progress = decision.progress
        assert progress.next_at == next_fire(one, now)
    assert seen == list(fire_times_between(one, NOON, now)) or max(looks) > every * MOST_RECORDED


def test_a_newer_zone_database_moves_only_the_next_fire_time() -> None:
    one = schedule()
    wrong = Progress(NOON + seconds(90), NOON + DAY, kept_at=NOON + MINUTE)
    assert foreseen(one, wrong) == Progress(NOON + seconds(90), NOON + 2 * MINUTE, kept_at=NOON + MINUTE)
    assert foreseen(schedule(enabled=False), wrong).next_at is None


# Overlap


@pytest.mark.parametrize(
    ("overlap", "previous", "fired", "skipped", "replaced", "kept", "cancels"),
    [
        (Overlap.ALLOW, RUNS, [1, 2, 3], [], [], None, False),
        (Overlap.SKIP, Previous(), [1], [2, 3], [], None, False),
        (Overlap.SKIP, RUNS, [], [1, 2, 3], [], None, False),
        (Overlap.SKIP, WAITS, [], [1, 2, 3], [], None, False),
        (Overlap.QUEUE, Previous(), [1], [3], [], 2, False),
        (Overlap.QUEUE, RUNS, [], [2, 3], [], 1, False),
        (Overlap.QUEUE, WAITS, [], [2, 3], [], 1, False),
        (Overlap.REPLACE, Previous(), [3], [], [1, 2], None, False),
        (Overlap.REPLACE, WAITS, [3], [], [1, 2], None, True),
        (Overlap.REPLACE, RUNS, [], [], [1, 2], 3, False),
        (Overlap.REPLACE, Previous(waiting=True, claimed=True), [], [], [1, 2], 3, True),
    ],
)
def test_overlap_decides_what_becomes_of_fire_times(
    overlap: Overlap,
    previous: Previous,
    fired: list[int],
    skipped: list[int],
    replaced: list[int],
    kept: int | None,
    cancels: bool,
) -> None:
    decision = after(seconds(3), previous, every=seconds(1), overlap=overlap)

    def numbers(outcome: FireOutcome) -> list[int]:
        return [(one.slot_at - NOON) // seconds(1) for one in decision.fire_times if one.outcome is outcome]

    assert (numbers(FIRED), numbers(SKIPPED), numbers(REPLACED)) == (fired, skipped, replaced)
    assert decision.progress.kept_at == (None if kept is None else NOON + seconds(kept))
    assert decision.cancels is cancels


def test_a_kept_fire_time_fires_when_the_previous_job_has_ended() -> None:
    one = schedule(overlap=Overlap.QUEUE)
    held = decide(one, begin(one, NOON), NOON + MINUTE, RUNS)
    assert held.fire_times == ()
    assert held.progress.kept_at == NOON + MINUTE
    ended = decide(one, held.progress, NOON + seconds(80))
    assert ended.fired == [NOON + MINUTE]
    assert ended.progress == Progress(NOON + MINUTE, NOON + 2 * MINUTE)


def test_queue_keeps_the_first_fire_time_and_replace_the_latest() -> None:
    for overlap, kept, outcome in ((Overlap.QUEUE, 1, SKIPPED), (Overlap.REPLACE, 2, REPLACED)):
        one = schedule(overlap=overlap)
        first = decide(one, begin(one, NOON), NOON + MINUTE, RUNS)
        second = decide(one, first.progress, NOON + 2 * MINUTE, RUNS)
        assert second.progress.kept_at == NOON + kept * MINUTE
        assert minutes(second, outcome) == [3 - kept]


def test_a_kept_fire_time_stays_while_nothing_happens() -> None:
    one = schedule(overlap=Overlap.QUEUE)
    held = decide(one, begin(one, NOON), NOON + MINUTE, RUNS)
    assert decide(one, held.progress, NOON + seconds(61), RUNS) == Decision((), held.progress)
    stopped = msgspec.structs.replace(one, enabled=False)
    assert decide(stopped, held.progress, NOON + seconds(61)).fire_times == ()


@given(
    overlap=st.sampled_from(Overlap),
    count=st.integers(0, 5),
    previous=st.builds(Previous, st.booleans(), st.booleans()),
)
def test_overlap_gives_every_fire_time_one_end(overlap: Overlap, count: int, previous: Previous) -> None:
    fire_times = [NOON + n * MINUTE for n in range(count)]
    overlapped = apply_overlap(overlap, fire_times, previous)
    kept = [] if overlapped.kept is None else [overlapped.kept]
    assert sorted([*overlapped.fired, *overlapped.skipped, *overlapped.replaced, *kept]) == fire_times
    if overlap is not Overlap.ALLOW:
        assert len(overlapped.fired) <= 1
        assert not (overlapped.fired and previous.claimed)
        assert not overlapped.cancels or (overlap is Overlap.REPLACE and previous.waiting)


# Which process looks first


@given(processes=st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8), minute=st.integers(0, 10**6))
def test_all_processes_name_the_same_first_one(processes: set[str], minute: int) -> None:
    fire_time = NOON + minute * MINUTE
    chosen = first_to_look(fire_time, processes)
    assert chosen in processes
    assert first_to_look(fire_time, sorted(processes, reverse=True)) == chosen
    others = processes - {min(processes - {chosen}, default="")}
    assert first_to_look(fire_time, others) == chosen  # one that leaves changes only its own fire times


def test_the_fire_times_are_shared_out() -> None:
    processes = [f"worker-{n}" for n in range(4)]
    shares = [first_to_look(NOON + n * MINUTE, processes) for n in range(1000)]
    assert all(180 < shares.count(one) < 320 for one in processes)
    assert first_to_look(NOON, []) is None
