"""How long a failed job waits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.verdict import CAP, backoff

spans = st.timedeltas(timedelta(0), timedelta(days=36525))
failures = st.integers(1, 10_000)
parts = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (11, 1024)])
def test_the_wait_doubles_from_the_base(failures: int, seconds: int) -> None:
    assert backoff(timedelta(seconds=1), failures) == timedelta(seconds=seconds)


def test_the_wait_stops_growing_at_the_cap() -> None:
    assert backoff(timedelta(seconds=1), 100) == CAP
    assert backoff(timedelta(seconds=1), 4, cap=timedelta(seconds=5)) == timedelta(seconds=5)


def test_a_base_beyond_the_cap_stays_what_it_is() -> None:
    assert backoff(timedelta(days=2), 1) == backoff(timedelta(days=2), 9) == timedelta(days=2)


def test_no_base_means_no_wait() -> None:
    assert backoff(timedelta(0), 50) == timedelta(0)


@given(spans, failures)
def test_the_wait_is_between_the_base_and_the_larger_of_base_and_cap(base: timedelta, failures: int) -> None:
    assert base <= backoff(base, failures) <= max(base, CAP)


@given(spans, failures)
def test_the_wait_never_shrinks_with_more_failures(base: timedelta, failures: int) -> None:
    assert backoff(base, failures) <= backoff(base, failures + 1)


@given(spans, failures, parts, parts)
def test_jitter_shortens_by_at_most_its_part(base: timedelta, failures: int, jitter: float, drawn: float) -> None:
    whole = backoff(base, failures)
    wait = backoff(base, failures, jitter=jitter, drawn=drawn)
    assert whole * (1 - jitter) - timedelta(microseconds=1) <= wait <= whole


def test_without_jitter_nothing_is_left_to_chance() -> None:
    assert backoff(timedelta(seconds=1), 3, drawn=0.99) == timedelta(seconds=4)


def test_jitter_uses_the_drawn_number() -> None:
    assert backoff(timedelta(seconds=8), 1, jitter=0.5, drawn=0.5) == timedelta(seconds=6)
