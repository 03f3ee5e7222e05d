"""Token buckets: a burst, then so many a second, in bounded memory."""

import pytest

from demora.core.access import RateLimiter, RequestRate

TEN = RequestRate(10, 20)


def taken(limiter: RateLimiter, now: float, tries: int = 100, caller: str = "a") -> int:
    return sum(limiter.take(caller, TEN, now) == 0 for _ in range(tries))


def test_a_burst_is_let_through_and_then_so_many_a_second() -> None:
    limiter = RateLimiter(10)
    assert taken(limiter, 5.0) == 20
    assert taken(limiter, 5.0) == 0
    assert taken(limiter, 5.5) == 5
    assert taken(limiter, 7.0) == 15


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    limiter = RateLimiter(10)
    assert taken(limiter, 0.0) == 20
    assert taken(limiter, 1e6) == 20


def test_a_refusal_says_when_there_will_be_room_and_costs_nothing() -> None:
    limiter = RateLimiter(10)
    taken(limiter, 0.0)
    assert [limiter.take("a", TEN, 0.0) for _ in range(3)] == [pytest.approx(0.1)] * 3
    assert limiter.take("a", TEN, 0.1) == 0.0


def test_callers_are_counted_apart() -> None:
    limiter = RateLimiter(10)
    assert (taken(limiter, 0.0, caller="a"), taken(limiter, 0.0, caller="b")) == (20, 20)


def test_a_rate_of_zero_is_no_limit_and_takes_no_memory() -> None:
    limiter = RateLimiter(10)
    assert all(limiter.take("a", RequestRate(0, 0), 0.0) == 0 for _ in range(1000))
    assert len(limiter) == 0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    limiter = RateLimiter(10)
    assert (taken(limiter, 100.0), taken(limiter, 50.0)) == (20, 0)


def test_only_the_last_callers_are_remembered() -> None:
    limiter = RateLimiter(3)
    for n in range(1000):
        limiter.take(n, TEN, 0.0)
    assert len(limiter) == 3


def test_a_caller_who_is_refused_is_not_forgotten_before_those_who_are_silent() -> None:
    limiter = RateLimiter(3)
    taken(limiter, 0.0, caller="loud")
    for n in range(100):
        limiter.take(n, TEN, 0.0)
        assert limiter.take("loud", TEN, 0.0) > 0
