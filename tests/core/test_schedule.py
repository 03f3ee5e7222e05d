"""Fire times of schedules: intervals, moments, start and end, jitter, jobs and words."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.job import Priority
from demora.core.schedules.schedule import (
    Overlap,
    Schedule,
    due_time,
    fire_times_back,
    fire_times_between,
    job_of,
    last_fire,
    next_fire,
    preview,
    say_schedule,
)
from tests.builders import ms, seconds

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def schedule(**changes: Any) -> Schedule:
    return Schedule(**{"name": "nightly", "type": "report.build", "payload": b"{}", "recorded_at": NOON, **changes})


offsets = st.integers(-(10**9), 10**9).map(ms)
timings = st.one_of(
    st.builds(lambda every: schedule(every=every), st.integers(1000, 10**8).map(ms)),
    st.builds(lambda every, start: schedule(every=every, start_at=NOON + start), st.integers(1000, 10**8).map(ms), offsets),
    st.builds(lambda at: schedule(at=tuple(sorted(NOON + one for one in at))), st.sets(offsets, min_size=1, max_size=9)),
    st.builds(lambda cron: schedule(cron=cron, timezone="Europe/Madrid"), st.sampled_from(["*/9 * * * *", "7 2 * * *"])),
)
bounded = st.builds(
    lambda one, start, length: schedule(
        cron=one.cron, every=one.every, at=one.at, start_at=NOON + start, end_at=NOON + start + length
    ),
    timings,
    offsets,
    st.integers(0, 10**9).map(ms),
)


# Intervals


def test_an_interval_counts_from_the_first_recording() -> None:
    assert preview(schedule(every=seconds(90)), NOON, 2) == [NOON + seconds(90), NOON + seconds(180)]
    assert next_fire(schedule(every=seconds(90)), NOON + 100 * DAY + seconds(1)) == NOON + 100 * DAY + seconds(90)


def test_an_interval_counts_from_its_start_and_fires_there_first() -> None:
    later = schedule(every=HOUR, start_at=NOON + DAY)
    assert preview(later, NOON, 2) == [NOON + DAY, NOON + DAY + HOUR]
    earlier = schedule(every=HOUR, start_at=NOON - seconds(60))
    assert next_fire(earlier, NOON) == NOON + seconds(3540)


def test_an_interval_is_elapsed_time_and_ignores_the_wall_clock() -> None:
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert preview(schedule(every=DAY, timezone="Europe/Madrid"), spring, 2) == [spring + DAY, spring + 2 * DAY]


# Moments, start and end


def test_the_listed_moments_are_the_fire_times() -> None:
    moments = (NOON, NOON + HOUR, NOON + DAY)
    assert preview(schedule(at=moments), NOON - HOUR, 9) == list(moments)
    assert next_fire(schedule(at=moments), NOON + DAY) is None
    assert last_fire(schedule(at=moments), NOON + DAY - ms(1)) == NOON + HOUR
    assert last_fire(schedule(at=moments), NOON - ms(1)) is None


def test_a_start_and_an_end_bound_the_fire_times_and_may_be_fire_times() -> None:
    bounded = schedule(cron="0 * * * *", start_at=NOON, end_at=NOON + 2 * HOUR)
    assert preview(bounded, NOON - DAY, 9) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert list(fire_times_back(bounded, NOON + DAY, NOON - DAY)) == [NOON + 2 * HOUR, NOON + HOUR, NOON]


@given(one=st.one_of(timings, bounded), after=offsets)
def test_forwards_and_backwards_see_the_same_fire_times(one: Schedule, after: timedelta) -> None:
    following = next_fire(one, NOON + after)
    if following is None:
        return
    assert following > NOON + after
    assert last_fire(one, following) == following
    before = last_fire(one, following - ms(1))
    assert before is None or before <= NOON + after
    assert one.start_at is None or following >= one.start_at
    assert one.end_at is None or following <= one.end_at
    forwards = list(islice(fire_times_between(one, NOON + after, NOON + after + DAY), 50))
    if forwards:
        assert list(fire_times_back(one, forwards[-1], NOON + after)) == forwards[::-1]


def test_a_fire_time_per_second_is_found_in_a_year_without_a_walk() -> None:
    each = schedule(cron="* * * * * *")
    year = NOON + 365 * DAY
    assert list(islice(fire_times_back(each, year, NOON), 3)) == [year, year - seconds(1), year - seconds(2)]
    assert next_fire(schedule(every=seconds(1)), year) == year + seconds(1)


# Jitter


@given(
    one=timings,
    jitter=st.integers(1, 10**9).map(ms),
    name=st.text("abc", min_size=1, max_size=5),
    after=offsets,
)
def test_jitter_moves_the_due_time_and_never_past_the_next_fire_time(
    one: Schedule, jitter: timedelta, name: str, after: timedelta
) -> None:
    shaken = schedule(name=name, cron=one.cron, every=one.every, at=one.at, timezone=one.timezone, jitter=jitter)
    fire_time = next_fire(shaken, NOON + after)
    if fire_time is None:
        return
    due, following = due_time(shaken, fire_time), next_fire(shaken, fire_time)
    assert fire_time <= due < fire_time + jitter
    assert following is None or due < following
    assert due.microsecond % 1000 == 0
    assert due_time(shaken, fire_time) == due


def test_jitter_is_drawn_from_the_name_and_the_fire_time() -> None:
    """These values are written down, so that no release draws others while an older one still runs."""
    shaken = schedule(every=DAY, jitter=HOUR)
    drawn = [due_time(shaken, fire_time) - fire_time for fire_time in preview(shaken, NOON, 3)]
    assert drawn == [ms(2_072_053), ms(2_766_975), ms(2_355_696)]
    other = schedule(name="other", every=DAY, jitter=HOUR)
    assert [due_time(other, fire_time) - fire_time for fire_time in preview(other, NOON, 3)] != drawn


def test_jitter_uses_the_whole_span() -> None:
    shaken = schedule(every=DAY, jitter=HOUR)
    drawn = [due_time(shaken, fire_time) - fire_time for fire_time in preview(shaken, NOON, 400)]
    assert min(drawn) < timedelta(minutes=1)
    assert max(drawn) > timedelta(minutes=59)
    assert timedelta(minutes=25) < sum(drawn, timedelta(0)) / 400 < timedelta(minutes=35)


# Jobs


def test_the_job_of_a_fire_time_has_what_the_schedule_says() -> None:
    asked = schedule(
        every=HOUR,
        payload=b'{"a":1}',
        queue="reports",
        priority=Priority.HIGH,
        max_retries=7,
        retry_delay=seconds(9),
        timeout=HOUR,
        tags=("x",),
        webhook_url="https://example.com/",
    )
    job = job_of(asked, "an-id", fire_time=NOON)
    assert (job.id, job.type, job.name, job.payload) == ("an-id", "report.build", "nightly", b'{"a":1}')
    assert (job.queue, job.priority, job.max_retries, job.retry_delay) == ("reports", Priority.HIGH, 7, seconds(9))
    assert (job.timeout, job.tags, job.webhook_url) == (HOUR, ("x",), "https://example.com/")
    assert (job.at, job.delay) == (NOON, None)


def test_the_job_of_a_fire_time_is_due_after_its_jitter_and_a_triggered_one_at_once() -> None:
    shaken = schedule(every=DAY, jitter=HOUR)
    assert job_of(shaken, "an-id", fire_time=NOON).at == due_time(shaken, NOON) != NOON
    assert (job_of(shaken, "an-id").at, job_of(shaken, "an-id").delay) == (None, None)
    spread = job_of(shaken, "an-id", fire_time=NOON, delay=seconds(5))
    assert (spread.at, spread.delay) == (None, seconds(5))


# Storing


@given(one=st.one_of(timings, bounded), jitter=st.integers(0, 10**9).map(ms), limit=st.integers(1, 1000))
def test_a_schedule_comes_back_from_json_as_it_was(one: Schedule, jitter: timedelta, limit: int) -> None:
    full = msgspec.structs.replace(
        one, jitter=jitter, missed_limit=limit, overlap=Overlap.QUEUE, payload=b'{"a":"\xc3\xa9"}'
    )
    assert msgspec.json.decode(msgspec.json.encode(full), type=Schedule) == full


# Words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cron": "0 3 * * *", "timezone": "Europe/Madrid"}, "every day at 03:00, Europe/Madrid"),
        ({"every": seconds(90)}, "every 90 seconds"),
        ({"every": seconds(3600)}, "every hour"),
        ({"every": seconds(172_800)}, "every 2 days"),
        ({"every": seconds(1.5)}, "every 1s500ms"),
        ({"at": (NOON,)}, "at 2026-01-15T12:00:00.000Z"),
        ({"at": (NOON, NOON + DAY)}, "at 2 moments from 2026-01-15T12:00:00.000Z"),
        (
            {"every": HOUR, "start_at": NOON, "end_at": NOON + DAY, "jitter": seconds(5)},
            "every hour, from 2026-01-15T12:00:00.000Z, until 2026-01-16T12:00:00.000Z, up to 5s later",
        ),
    ],
)
def test_a_schedule_can_be_said_in_words(changes: dict[str, Any], words: str) -> None:
    assert say_schedule(schedule(**changes)) == words
