"""Turns at a busy host: when each job that found its host busy tries again. Times are seconds on one monotonic clock."""

import msgspec

SHORTEST, LONGEST = 15.0, 3600.0  # seconds ahead for which turns are given, at least and at most
GROWTH = 3.0  # turns are given for this many times as long as the host has been busy
GUESS = 0.5  # seconds that a call takes, while no call has ended
WEIGHT = 0.2  # of one call in the average


class Crowd(msgspec.Struct, frozen=True):
    """The jobs that wait for one busy host: since when it is busy, until when turns are given, and when the last job
    tries again."""

    since: float
    booked_until: float
    last_back: float

    def over(self, now: float) -> bool:
        """Whether all of the jobs should have tried again by now."""
        return now > self.last_back + SHORTEST


def come_back(crowd: Crowd | None, *, now: float, gap: float, drawn: float) -> tuple[Crowd, float]:
    """Return the crowd with one more job, and the wait of that job. `gap` is the average time between the ends of two calls,
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
    """Return the average duration of a call after one more call. Recent calls count most."""
    return took if before is None else before + WEIGHT * (took - before)
