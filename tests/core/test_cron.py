"""Cron expressions: what they mean, when they fire as clocks are set forward and back, and which are refused."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.schedules.cron import MACROS, MOST_CRON, read_cron
from demora.core.schedules.cron_words import say_cron
from demora.core.schedules.wall_clock import wall_clock
from demora.errors import Invalid
from tests.builders import seconds

UTC_CLOCK = wall_clock("UTC")
EXPRESSIONS = (
    *("0 3 * * *", "30 2 * * *", "*/30 2 * * *", "*/20 * * * *", "0 */2 * * *", "0 0 L * *", "0 9 * * MON#2", "0 9 * * 5L"),
    *("15 30 2 * * *", "*/7 * * * * *", "0 0 29 2 *", "@weekly"),
)
ZONES = (
    "UTC",
    "Europe/Madrid",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Casablanca",
)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


def fires(expression: str, zone: str, after: str, count: int = 3) -> list[str]:
    """The next fire times in UTC, without their year: `03-29T01:00:00`."""
    found, at = list[str](), datetime.fromisoformat(after).replace(tzinfo=UTC)
    for _ in range(count):
        following = read_cron(expression).next(at, wall_clock(zone))
        assert following is not None
        at = following
        found.append(f"{at:%m-%dT%H:%M:%S}")
    return found


# What can be said


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 3 * * *", ["01-15T03:00:00", "01-16T03:00:00", "01-17T03:00:00"]),
        ("30 0 3 * * *", ["01-15T03:00:30", "01-16T03:00:30", "01-17T03:00:30"]),
        ("*/20 * * * * *", ["01-15T00:00:20", "01-15T00:00:40", "01-15T00:01:00"]),
        ("0 9-10 * jan,mar mon-fri", ["01-15T09:00:00", "01-15T10:00:00", "01-16T09:00:00"]),
        ("0 0 L * *", ["01-31T00:00:00", "02-28T00:00:00", "03-31T00:00:00"]),
        ("0 0 LW * *", ["01-30T00:00:00", "02-27T00:00:00", "03-31T00:00:00"]),
        ("0 0 * * MON#2", ["02-09T00:00:00", "03-09T00:00:00", "04-13T00:00:00"]),
        ("0 0 * * 5L", ["01-30T00:00:00", "02-27T00:00:00", "03-27T00:00:00"]),
        ("0 0 13 * FRI", ["01-16T00:00:00", "01-23T00:00:00", "01-30T00:00:00"]),
        ("0 0 */2 * SUN", ["01-25T00:00:00", "02-01T00:00:00", "02-15T00:00:00"]),
        ("0 5-5/2 * * *", ["01-15T05:00:00", "01-16T05:00:00", "01-17T05:00:00"]),
        ("0 5/9 * * *", ["01-15T05:00:00", "01-15T14:00:00", "01-15T23:00:00"]),
        ("0 0 * * mon-mon/2", ["01-19T00:00:00", "01-26T00:00:00", "02-02T00:00:00"]),
        ("@hourly", ["01-15T01:00:00", "01-15T02:00:00", "01-15T03:00:00"]),
        ("@daily", ["01-16T00:00:00", "01-17T00:00:00", "01-18T00:00:00"]),
        ("@Weekly", ["01-18T00:00:00", "01-25T00:00:00", "02-01T00:00:00"]),
        ("@monthly", ["02-01T00:00:00", "03-01T00:00:00", "04-01T00:00:00"]),
    ],
)
def test_an_expression_fires_at_the_times_that_it_names(expression: str, expected: list[str]) -> None:
    assert fires(expression, "UTC", "2026-01-15") == expected


def test_every_macro_is_known() -> None:
    for macro in MACROS:
        assert read_cron(macro).next(datetime(2026, 1, 15, tzinfo=UTC), UTC_CLOCK) is not None


def test_a_zone_moves_the_fire_times() -> None:
    assert fires("0 3 * * *", "Europe/Madrid", "2026-01-15", 1) == ["01-15T02:00:00"]
    assert fires("0 3 * * *", "Asia/Kathmandu", "2026-01-15", 1) == ["01-15T21:15:00"]


# Clocks that are set forward: 29 March 2026, from 02:00 to 03:00 in Madrid, at 01:00 UTC


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["03-29T01:00:00", "03-30T00:30:00"]),
        ("0 30 2 * * *", ["03-29T01:00:00", "03-30T00:30:00"]),
        ("*/10 2 * * *", ["03-29T01:00:00", "03-30T00:00:00"]),  # six times that fall on one instant
        ("30 2,3 * * *", ["03-29T01:00:00", "03-29T01:30:00"]),
        ("0 2,3 * * *", ["03-29T01:00:00", "03-30T00:00:00"]),
        ("30 0-23 * * *", ["03-29T00:30:00", "03-29T01:00:00"]),
        ("30 * * * *", ["03-29T00:30:00", "03-29T01:30:00"]),
        ("0 30 * * * *", ["03-29T00:30:00", "03-29T01:30:00"]),
        ("30 */2 * * *", ["03-29T02:30:00", "03-29T04:30:00"]),
    ],
)
def test_a_time_that_is_left_out_fires_after_the_gap_unless_the_expression_follows_real_time(
    expression: str, expected: list[str]
) -> None:
    assert fires(expression, "Europe/Madrid", "2026-03-29", 2) == expected


# Clocks that are set back: 25 October 2026, from 03:00 to 02:00 in Madrid, at 01:00 UTC


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["10-25T00:30:00", "10-26T01:30:00", "10-27T01:30:00"]),
        ("0 30 2 * * *", ["10-25T00:30:00", "10-26T01:30:00", "10-27T01:30:00"]),
        ("*/30 2,3 * * *", ["10-25T00:00:00", "10-25T00:30:00", "10-25T02:00:00"]),
        ("30 * * * *", ["10-24T23:30:00", "10-25T00:30:00", "10-25T01:30:00"]),
        ("0 30 * * * *", ["10-24T23:30:00", "10-25T00:30:00", "10-25T01:30:00"]),
        ("0 */2 * * *", ["10-25T00:00:00", "10-25T01:00:00", "10-25T03:00:00"]),
    ],
)
def test_a_time_that_comes_twice_fires_once_unless_the_expression_follows_real_time(
    expression: str, expected: list[str]
) -> None:
    assert fires(expression, "Europe/Madrid", "2026-10-24T23:00", 3) == expected


def test_an_expression_that_was_asked_in_the_repeated_hour_does_not_fire_again_in_it() -> None:
    assert fires("45 2 * * *", "Europe/Madrid", "2026-10-25T01:10", 1) == ["10-26T01:45:00"]


def test_a_day_that_is_left_out_fires_at_its_end() -> None:
    """Samoa had no 30 December 2011: after the 29th came the 31st, at 10:00 UTC."""
    assert fires("0 3 * * *", "Pacific/Apia", "2011-12-29T20:00") == ["12-30T10:00:00", "12-30T13:00:00", "12-31T13:00:00"]
    assert fires("0 0 * * *", "Pacific/Apia", "2011-12-29T20:00", 2) == ["12-30T10:00:00", "12-31T10:00:00"]


# For every expression, zone and time


@pytest.mark.parametrize("start", ["2026-03-28T12:00", "2026-10-24T12:00"], ids=["set forward", "set back"])
@pytest.mark.parametrize("expression", ["30 */2 * * *", "*/20 * * * *", "30 2 * * *", "*/30 2 * * *", "0 */3 * * *"])
def test_fire_times_are_the_same_backwards_while_clocks_are_set(expression: str, start: str) -> None:
    cron, clock, begin = (
        read_cron(expression),
        wall_clock("Europe/Madrid"),
        datetime.fromisoformat(start).replace(tzinfo=UTC),
    )
    forth, back = list[datetime](), list[datetime]()
    at = cron.next(begin, clock)
    while at is not None and at < begin + timedelta(days=2):
        forth.append(at)
        at = cron.next(at, clock)
    at = cron.last(begin + timedelta(days=2) - seconds(1), clock)
    while at is not None and at > begin:
        back.append(at)
        at = cron.last(at - seconds(1), clock)
    assert back[::-1] == forth


def test_a_time_that_is_skipped_is_not_the_last_one() -> None:
    """At 01:00 UTC the clock goes from 02:00 to 03:00 in Madrid."""
    cron, clock = read_cron("30 */2 * * *"), wall_clock("Europe/Madrid")
    assert cron.last(datetime(2026, 3, 29, 2, tzinfo=UTC), clock) == datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    assert cron.next(datetime(2026, 3, 28, 23, 30, tzinfo=UTC), clock) == datetime(2026, 3, 29, 2, 30, tzinfo=UTC)


@given(expression=st.sampled_from(EXPRESSIONS), zone=st.sampled_from(ZONES), after=instants)
def test_the_next_fire_time_is_later_and_is_the_last_one_up_to_itself(expression: str, zone: str, after: datetime) -> None:
    cron, clock = read_cron(expression), wall_clock(zone)
    following = cron.next(after, clock)
    assert following is not None
    assert following > after
    assert cron.last(following, clock) == following
    before = cron.last(following - seconds(1), clock)
    assert before is not None
    assert before <= after
    assert cron.next(before, clock) == following


@given(zone=st.sampled_from(ZONES), at=instants)
def test_a_wall_clock_shows_what_it_is_asked_for(zone: str, at: datetime) -> None:
    clock, at = wall_clock(zone), at.replace(microsecond=0)
    assert at in clock.instants(clock.at(at))
    assert clock.reached(at) >= clock.at(at).replace(fold=0)


# Refusals


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "has 0 fields"),
        ("0 3 *", "has 3 fields"),
        ("0 0 0 3 * * *", "has 7 fields"),
        ("61 * * * *", "'61' is not a valid minute; allowed is 0 to 59"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("60 * * * * *", "'60' is not a valid second"),
        ("0 0 32 * *", "'32' is not a valid day-of-month"),
        ("0 0 1,L/2 * *", "'1,L/2' is not a valid day-of-month"),
        ("0 0 ? * *", "'?' is not a valid day-of-month"),
        ("0 0 * 13 *", "'13' is not a valid month"),
        ("0 0 * * MOON", "'MOON' is not a valid day-of-week"),
        ("0 0 * * MON#6", "'MON#6' is not a valid day-of-week"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("*/90 * * * *", "a step of 90, but the minute has only 60 values"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("* * */20 * 1L", "never fires"),
        ("@reboot", "write one of @yearly"),
        ("é * * * *", "plain characters"),
        ("0 " * MOST_CRON, "plain characters"),
        (None, "must be text"),
        (["0 3 * * *"], "must be text"),
    ],
)
def test_a_bad_expression_is_refused_with_the_reason(expression: Any, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_cron(expression)
    assert refused.value.field == "cron"
    assert says in refused.value.reason


def test_an_expression_that_never_fires_is_refused_quickly() -> None:
    began = time.process_time()
    for minute in range(5):
        with pytest.raises(Invalid):
            read_cron(f"{minute} * */20 * 1L")
    assert time.process_time() - began < 5


@given(st.text("0123456789*/,-#LW? @ACDEFJMNORSTU\n\0é", max_size=40))
def test_no_text_raises_anything_but_invalid(text: str) -> None:
    try:
        cron = read_cron(text)
    except Invalid:
        return
    following = cron.next(datetime(2026, 1, 1, tzinfo=UTC), UTC_CLOCK)
    assert following is not None
    assert cron.say()


@pytest.mark.parametrize(
    "zone", ["", "Mars/Phobos", "America", "/etc/passwd", "../UTC", "localtime", "UTC\0", "x" * 999, 7, None, []]
)
def test_an_unknown_zone_is_refused(zone: Any) -> None:
    with pytest.raises(Invalid, match="write for instance 'UTC'") as refused:
        wall_clock(zone)
    assert refused.value.field == "timezone"


# Words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 3 * * *", "every day at 03:00"),
        ("30 0 3 * * *", "every day at 03:00:30"),
        ("@daily", "every day at 00:00"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00"),
        ("0 12 * 6-8 *", "every day at 12:00 from June to August"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/15 * * * * *", "every 15 seconds"),
        ("*/15 * * 6 *", "every 15 minutes in June"),
        ("0 * * * *", "every hour"),
        ("30 * * * *", "every hour at minute 30"),
        ("15,45 * * * *", "every hour at minutes 15 and 45"),
        ("0 */6 * * *", "every 6 hours from 00:00"),
        ("0 8-18 * * 1-5", "every hour from 08:00 to 18:00 on weekdays"),
        ("*/10 8-18 * * MON-FRI", "every 10 minutes from 08:00 to 18:50 on weekdays"),
        ("0 9 * * 1-5", "every weekday at 09:00"),
        ("30 9 * * 1", "every Monday at 09:30"),
        ("0 9 * * 6,7", "every Saturday and Sunday at 09:00"),
        ("0 22 * 6 1,3,5", "every Monday, Wednesday and Friday at 22:00 in June"),
        ("0 9 * * 1#2", "at 09:00 on the second Monday of each month"),
        ("0 9 * * 5L", "at 09:00 on the last Friday of each month"),
        ("0 3 1 * *", "at 03:00 on the 1st of each month"),
        ("0 0 22,31 * *", "at 00:00 on the 22nd and 31st of each month"),
        ("0 0 12 * *", "at 00:00 on the 12th of each month"),
        ("0 0 1-7 * *", "at 00:00 on the 1st to 7th of each month"),
        ("0 0 L * *", "at 00:00 on the last day of each month"),
        ("0 0 LW 6 *", "at 00:00 on the last weekday of June"),
        ("0 0 1 */3 *", "at 00:00 on the 1st of January, April, July and October"),
        ("0 0 1 1 *", "at 00:00 on 1 January"),
        ("5,10,15,20,25,50 * * * *", "every hour at minutes 5, 10, 15, 20, 25 and 50"),
        ("0 9 * 1,3,5,7,9,11 *", "every day at 09:00 in January, March, May, July, September and November"),
        ("0 9 1 1,2,3,5,6,8 *", "at 09:00 on the 1st of January, February, March, May, June and August"),
        # Shapes without usual words: a rhythm that begins anew each hour, and days of both kinds.
        ("*/7 * * * *", "every seventh minute of every hour"),
        ("0 9 1 * 1", "at 09:00 on the first day of month and on Monday"),
        ("0 9 1-30/2 * *", "at 09:00 on every second day of month from 1 through 30"),
    ],
)
def test_an_expression_can_be_said_in_words(expression: str, words: str) -> None:
    assert read_cron(expression).say() == words


@pytest.mark.parametrize("expression", ["5,10,15,20,25,45,50 * * * *", "0 9 * 1,3,5,7,9,11,12 *", "0 9 1 1,2,3,5,6,8,10 *"])
def test_a_long_list_has_no_usual_words(expression: str) -> None:
    assert say_cron(expression.split()) is None


def test_a_fire_time_has_no_fraction_of_a_second() -> None:
    after = datetime(2026, 1, 15, 2, 59, 59, 999_999, tzinfo=UTC)
    assert read_cron("0 3 * * *").next(after, UTC_CLOCK) == datetime(2026, 1, 15, 3, tzinfo=UTC)
    assert read_cron("0 3 * * *").last(after, UTC_CLOCK) == datetime(2026, 1, 14, 3, tzinfo=UTC)
    assert read_cron("0 3 * * *").last(after + timedelta(microseconds=1), UTC_CLOCK) == datetime(2026, 1, 15, 3, tzinfo=UTC)
