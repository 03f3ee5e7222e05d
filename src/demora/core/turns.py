"""When a job comes back whose host is busy. Times are seconds on one monotonic clock.

The jobs that wait for a host get turns one after the other, as far apart as the host ends calls. A turn is given only as far
ahead as the host has been busy: an estimate from five seconds says nothing about the next hour. A job beyond that comes
back at some time within it and asks again. So a job asks about as often as the logarithm of its whole wait, however many
others wait for the same host, and a host that becomes quick again soon has calls to answer.
"""

import msgspec

SHORTEST = 15.0  # seconds ahead that turns are given at least
LONGEST = 3600.0  # and at most
GROWTH = 3.0  # how far ahead, in times that the host has been busy
GUESS = 0.5  # seconds that a call takes, while none of them has ended
WEIGHT = 0.2  # of one call in the average


class Crowd(msgspec.Struct, frozen=True):
    """The jobs that were sent away from one host: since when, up to when turns are given, and when the last comes back."""

    since: float
    booked_until: float
    last_back: float

    def over(self, now: float) -> bool:
        """Whether all of them should have come back by now."""
        return now > self.last_back + SHORTEST


def come_back(crowd: Crowd | None, *, now: float, gap: float, drawn: float) -> tuple[Crowd, float]:
    """The wait of one more job whose host is busy, and the crowd with it. `gap` is the time between two ends of calls,
    `drawn` a random number from [0, 1)."""
    if crowd is None or crowd.over(now):
        crowd = Crowd(since=now, booked_until=now, last_back=now)
    ahead = min(max(SHORTEST, GROWTH * (now - crowd.since)), LONGEST)
    turn = max(crowd.booked_until, now) + gap
    if turn - now <= ahead:
        wait, booked = min(turn - now + gap * drawn, ahead), turn
    else:
        wait, booked = ahead * (1 - drawn / 2), crowd.booked_until
    return Crowd(crowd.since, booked, max(crowd.last_back, now + wait)), wait


def average(before: float | None, took: float) -> float:
    """The time that a call takes, after one more of them: the last few count most."""
    return took if before is None else before + WEIGHT * (took - before)
