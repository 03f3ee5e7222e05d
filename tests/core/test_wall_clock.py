"""The wall clock of a zone: which instants a time has, when the clock was set, and the latest time that it has shown."""

from datetime import UTC, datetime, timedelta

import pytest

from demora.core.schedules.wall_clock import wall_clock

MADRID = wall_clock("Europe/Madrid")
FORWARD, BACK = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_time_comes_once_twice_or_never() -> None:
    assert MADRID.instants(datetime(2026, 7, 1, 12)) == (datetime(2026, 7, 1, 10, tzinfo=UTC),)
    assert MADRID.instants(datetime(2026, 10, 25, 2, 30)) == (BACK - 30 * MINUTE, BACK + 30 * MINUTE)
    assert MADRID.instants(datetime(2026, 3, 29, 2, 30)) == ()


@pytest.mark.parametrize("minute", [0, 1, 30, 59])
def test_the_clock_was_set_at_an_instant(minute: int) -> None:
    assert MADRID.transition(datetime(2026, 3, 29, 2, minute)) == FORWARD
    assert MADRID.transition(datetime(2026, 10, 25, 2, minute)) == BACK


def test_the_latest_time_that_was_shown_stays_while_the_clock_shows_times_again() -> None:
    assert MADRID.reached(BACK - MINUTE) == datetime(2026, 10, 25, 2, 59)
    assert MADRID.reached(BACK + MINUTE) == datetime(2026, 10, 25, 2, 59, 59)
    assert MADRID.reached(BACK + 60 * MINUTE) == datetime(2026, 10, 25, 3)
    assert MADRID.reached(FORWARD) == datetime(2026, 3, 29, 3)
