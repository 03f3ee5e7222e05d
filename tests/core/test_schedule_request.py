"""Requests for schedules: what is checked, what is filled in, and what a change keeps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from demora.core.job import Priority
from demora.core.schedules.schedule import Missed, Overlap, Schedule
from demora.core.schedules.schedule_request import (
    LONGEST_EVERY,
    MOST_MISSED_LIMIT,
    MOST_MOMENTS,
    ScheduleRequest,
    change_schedule,
    make_schedule,
)
from demora.errors import Invalid
from tests.builders import ms, seconds

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def made(**fields: Any) -> Schedule:
    return make_schedule("nightly", ScheduleRequest(**{"type": "report.build", **fields}), now=NOW)


def test_what_is_not_asked_is_usual() -> None:
    schedule = made(cron="0 3 * * *")
    assert schedule == Schedule(
        name="nightly", type="report.build", payload=b"{}", recorded_at=NOW, cron="0 3 * * *", timezone="UTC"
    )
    assert (schedule.overlap, schedule.missed, schedule.enabled) == (Overlap.ALLOW, Missed.LAST, True)


def test_every_field_can_be_asked() -> None:
    schedule = made(
        payload={"a": 1},
        cron=" 0  3 * * * ",
        timezone="Europe/Madrid",
        queue="reports",
        priority="HIGH",
        max_retries=7,
        retry_delay="9s",
        timeout="1h",
        tags=["x"],
        webhook_url="https://example.com/",
        enabled=False,
        reason="not yet",
        start_at=NOW + DAY,
        end_at=NOW + 9 * DAY,
        jitter="5m",
        overlap="skip",
        missed="all",
        missed_limit=9,
        late_limit="1h",
    )
    assert schedule == Schedule(
        name="nightly",
        type="report.build",
        payload=b'{"a":1}',
        recorded_at=NOW,
        cron="0 3 * * *",
        timezone="Europe/Madrid",
        queue="reports",
        priority=Priority.HIGH,
        max_retries=7,
        retry_delay=seconds(9),
        timeout=HOUR,
        tags=("x",),
        webhook_url="https://example.com/",
        enabled=False,
        reason="not yet",
        start_at=NOW + DAY,
        end_at=NOW + 9 * DAY,
        jitter=timedelta(minutes=5),
        overlap=Overlap.SKIP,
        missed=Missed.ALL,
        missed_limit=9,
        late_limit=HOUR,
    )


def test_moments_are_sorted_and_each_counts_once() -> None:
    later, sooner = NOW + DAY, NOW + HOUR
    assert made(at=[later, sooner, later]).at == (sooner, later)


def test_times_are_rounded_up_to_milliseconds() -> None:
    odd = NOW + HOUR + timedelta(microseconds=1)
    assert made(at=[odd]).at == (NOW + HOUR + ms(1),)
    assert made(every="90s", start_at=odd).start_at == NOW + HOUR + ms(1)


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({}, "cron", "give one of cron"),
        ({"cron": "0 3 * * *", "every": "90s"}, "every", "not cron and every"),
        ({"every": "90s", "at": [NOW + DAY]}, "at", "not every and at"),
        ({"cron": "99 3 * * *"}, "cron", "is not a valid minute"),
        ({"cron": None}, "cron", "must be text"),
        ({"cron": "0 0 30 2 *"}, "cron", "never fires"),
        ({"every": "999ms"}, "every", "at least 1s"),
        ({"every": LONGEST_EVERY + ms(1)}, "every", "at most"),
        ({"every": 90}, "every", "a span is a timedelta"),
        ({"at": []}, "at", "1 to"),
        ({"at": [NOW + n * HOUR for n in range(MOST_MOMENTS + 1)]}, "at", "1 to"),
        ({"at": "2030-01-01"}, "at", "must be a list"),
        ({"at": NOW}, "at", "must be a list"),
        ({"at": [datetime(2030, 1, 1)]}, "at[0]", "has no zone"),
        ({"at": [NOW - DAY, NOW]}, "at", "would never fire: give at least one time that is not past"),
        ({"every": "90s", "timezone": "Mars/Phobos"}, "timezone", "not a zone"),
        ({"every": "90s", "end_at": NOW}, "end_at", "is past"),
        ({"every": "90s", "start_at": NOW + DAY, "end_at": NOW + DAY}, "end_at", "must be after start_at"),
        ({"cron": "@daily", "start_at": NOW + HOUR, "end_at": NOW + 2 * HOUR}, "cron", "no time from 2026-01-15T13"),
        ({"cron": "@daily", "end_at": NOW + HOUR}, "cron", "no time from now to 2026-01-15T13"),
        ({"at": [NOW + HOUR], "start_at": NOW + DAY}, "at", "from 2026-01-16T12:00:00.000Z to its last time"),
        ({"every": "90s", "jitter": "2d"}, "jitter", "at most 1d"),
        ({"every": "90s", "late_limit": "-1s"}, "late_limit", "is not a span"),
        ({"every": "90s", "overlap": "both"}, "overlap", "one of allow, skip, queue, replace"),
        ({"every": "90s", "missed": ["all"]}, "missed", "one of skip, last, all"),
        ({"every": "90s", "missed_limit": 0}, "missed_limit", "from 1 to"),
        ({"every": "90s", "missed_limit": MOST_MISSED_LIMIT + 1}, "missed_limit", "from 1 to"),
        ({"every": "90s", "missed_limit": True}, "missed_limit", "from 1 to"),
        ({"every": "90s", "payload": [1]}, "payload", "JSON object"),
        ({"every": "90s", "type": "no good"}, "type", "1 to 128"),
        ({"every": "90s", "queue": "no good"}, "queue", "1 to 64"),
        ({"every": "90s", "priority": "URGENT"}, "priority", "one of CRITICAL"),
        ({"every": "90s", "enabled": "yes"}, "enabled", "true or false"),
        ({"every": "90s", "tags": "x"}, "tags", "list"),
        ({"every": "90s", "timeout": "0s"}, "timeout", "greater than zero"),
    ],
)
def test_a_bad_request_is_refused_with_the_field_and_the_reason(fields: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        made(**fields)
    assert refused.value.field == field
    assert says in refused.value.reason


def test_a_schedule_without_a_type_is_refused() -> None:
    with pytest.raises(Invalid, match="type: is required"):
        make_schedule("nightly", ScheduleRequest(every="90s"), now=NOW)


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "é", "x" * 129, None])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(Invalid, match="name: a schedule is named with"):
        make_schedule(name, ScheduleRequest(type="t", every="90s"), now=NOW)


# Changes


def changed(schedule: Schedule, **fields: Any) -> Schedule:
    return change_schedule(schedule, ScheduleRequest(**fields), now=NOW + DAY)


def test_a_change_keeps_what_it_does_not_name() -> None:
    before = made(cron="0 3 * * *", queue="reports", timeout="1h")
    after = changed(before, cron="0 4 * * *", timeout=None)
    assert (after.cron, after.timeout, after.queue, after.recorded_at) == ("0 4 * * *", None, "reports", NOW)


def test_another_kind_of_timing_replaces_the_one_before() -> None:
    after = changed(made(cron="0 3 * * *"), every="90s")
    assert (after.cron, after.every) == (None, seconds(90))


def test_a_schedule_that_has_ended_can_be_changed_but_not_in_its_timing_alone() -> None:
    ended = made(at=[NOW + HOUR])
    assert changed(ended, enabled=False).enabled is False
    with pytest.raises(Invalid, match="would never fire"):
        changed(ended, timezone="Europe/Madrid")


def test_enabling_forgets_the_reason_of_the_pause() -> None:
    paused = made(every="90s", enabled=False, reason="broken")
    assert changed(paused, queue="other").reason == "broken"
    assert changed(paused, enabled=True).reason is None


def test_a_change_is_checked_like_a_new_schedule() -> None:
    with pytest.raises(Invalid, match="end_at"):
        changed(made(every="90s"), end_at=NOW)
    with pytest.raises(Invalid, match="priority"):
        changed(made(every="90s"), priority="URGENT")
