"""Times and spans at the border."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.spans import CENTURY, from_ms, moment, say, span, span_ms, timestamp, to_ms
from demora.errors import Invalid

MICRO = timedelta(microseconds=1)
MILLI = timedelta(milliseconds=1)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
spans = st.timedeltas(timedelta(0), CENTURY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
    ],
)
def test_a_span_is_read_from_text(text: str, expected: timedelta) -> None:
    assert span(text, "delay") == expected


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 s", "5S", "1e3s", "5s ", "5y", "1h-5m", ".5s", "5.s", "nan", "9" * 70 + "s"]
)
def test_text_that_is_no_span_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(Invalid, match=r"^delay: .*not a span"):
        span(text, "delay")


@pytest.mark.parametrize("value", [5, 5.0, True, None, [], b"5s"])
def test_a_bare_number_never_means_time(value) -> None:
    with pytest.raises(Invalid, match="timedelta or text"):
        span(value, "delay")


@pytest.mark.parametrize("value", [-MICRO, timedelta(days=-1)])
def test_a_negative_span_is_refused(value: timedelta) -> None:
    with pytest.raises(Invalid, match="negative"):
        span(value, "delay")


@pytest.mark.parametrize("value", [CENTURY + MICRO, "36526d", "9999999999999999999999w", timedelta.max])
def test_a_span_beyond_the_most_is_refused(value) -> None:
    with pytest.raises(Invalid):
        span(value, "delay")


def test_a_span_up_to_the_most_is_accepted() -> None:
    assert span(CENTURY, "delay") == CENTURY
    assert span("10s", "delay", most=timedelta(seconds=10)) == timedelta(seconds=10)
    with pytest.raises(Invalid, match="at most 10s"):
        span("11s", "delay", most=timedelta(seconds=10))


@given(moments)
def test_a_time_is_rounded_up_to_the_millisecond(at: datetime) -> None:
    assert timedelta(0) <= from_ms(to_ms(at)) - at < MILLI


@given(spans)
def test_a_span_is_rounded_up_to_the_millisecond(value: timedelta) -> None:
    assert timedelta(0) <= span_ms(value) * MILLI - value < MILLI


@given(st.integers(-(10**13), 10**13))
def test_whole_milliseconds_come_back_as_they_were(value: int) -> None:
    assert to_ms(from_ms(value)) == value
    assert from_ms(value).tzinfo is UTC


def test_milliseconds_count_from_1970() -> None:
    assert to_ms(datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)) == 10**12


def test_zones_are_one_time() -> None:
    at = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert to_ms(at) == to_ms(at.astimezone(UTC))
    assert moment(at, "scheduledAt") is at


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), "2030-01-01T00:00:00Z", 1_900_000_000, None])
def test_a_time_without_a_zone_is_refused(value) -> None:
    with pytest.raises(Invalid, match="zone"):
        moment(value, "scheduledAt")


@pytest.mark.parametrize(
    ("value", "text"),
    [(timedelta(0), "0s"), (timedelta(minutes=90), "1h30m"), (timedelta(milliseconds=250), "250ms"), (CENTURY, "36525d")],
)
def test_a_span_is_said_shortly(value: timedelta, text: str) -> None:
    assert say(value) == text


@given(spans.map(lambda value: span_ms(value) * MILLI).filter(bool))
def test_what_is_said_can_be_read(value: timedelta) -> None:
    if value <= CENTURY:
        assert span(say(value), "delay") == value


@pytest.mark.parametrize(
    ("micros", "fraction"), [(0, ".000"), (1, ".000"), (999, ".000"), (1000, ".001"), (120_000, ".120"), (999_999, ".999")]
)
def test_a_timestamp_always_has_milliseconds(micros: int, fraction: str) -> None:
    at = datetime(2026, 5, 1, 12, 30, 15, micros, timezone(timedelta(hours=2)))
    assert timestamp(at) == f"2026-05-01T10:30:15{fraction}Z"


@given(moments)
def test_a_timestamp_is_what_isoformat_says(at: datetime) -> None:
    assert timestamp(at) == at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
