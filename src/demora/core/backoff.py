"""How long a failed job waits before its next attempt."""

from datetime import timedelta

CAP = timedelta(days=1)
_MOST_DOUBLINGS = 40


def backoff(base: timedelta, failures: int, *, cap: timedelta = CAP, jitter: float = 0.0, drawn: float = 0.0) -> timedelta:
    """The wait after the `failures`-th failure: base, twice, four times as long, up to `cap` but never below base.

    With a jitter of j the wait is shortened by up to that part of itself, by a number drawn from [0, 1).
    """
    ceiling = max(cap, base)
    doublings: int = min(failures - 1, _MOST_DOUBLINGS)
    try:
        wait = min(base * (1 << doublings), ceiling)
    except OverflowError:
        wait = ceiling
    return wait * (1 - jitter * drawn)
