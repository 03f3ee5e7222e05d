"""Schedules: rules that add jobs again and again, and their fire times.

A schedule has *fire times*. Each of them makes at most one job. Jitter moves the time at which the job is due, never
the fire time. Fire times and due times are whole milliseconds.

- `cron` has its fire times by the wall clock of the time zone; `core/schedules/cron.py` has the rules.
- `every` has its fire times in elapsed time from `start_at`, else from when the schedule was first recorded.
- `at` has the listed moments as its fire times.

No fire time lies before `start_at` or after `end_at`. No function here walks more fire times than it returns, so a schedule
per second that was forgotten for a year costs no more than any other.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache

import msgspec

from ...errors import Invalid
from ..job import DEFAULT_QUEUE, DEFAULT_RETRIES, DEFAULT_RETRY_DELAY, NewJob, Priority
from ..spans import MILLISECOND, ZERO, say, span_ms, timestamp, to_ms
from .cron import read_cron
from .wall_clock import wall_clock

SHORTEST_EVERY = timedelta(seconds=1)
USUAL_MISSED_LIMIT = 100
USUAL_LATE_LIMIT = timedelta(days=7)


class Overlap(Enum):
    """What a fire time does while an earlier job of the schedule has not ended."""

    ALLOW = "allow"  # it adds its job all the same
    SKIP = "skip"  # it adds none
    QUEUE = "queue"  # the first such fire time adds its job when the earlier ones have ended
    REPLACE = "replace"  # the latest such fire time does so, and earlier jobs that were never claimed are cancelled


class Missed(Enum):
    """Which of the fire times that no process saw in time fire late."""

    SKIP = "skip"
    LAST = "last"
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True):
    """A checked schedule: one of `cron`, `every` and `at`, the jobs to add, and the policies. `recorded_at` is when it was
    first stored; changes keep it."""

    name: str
    type: str
    payload: bytes
    recorded_at: datetime
    cron: str | None = None
    every: timedelta | None = None
    at: tuple[datetime, ...] | None = None  # in order
    timezone: str = "UTC"
    queue: str = DEFAULT_QUEUE
    priority: Priority = Priority.NORMAL
    max_retries: int = DEFAULT_RETRIES
    retry_delay: timedelta = DEFAULT_RETRY_DELAY
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    webhook_url: str | None = None
    enabled: bool = True
    reason: str | None = None  # of the pause, if it is not enabled
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: timedelta = ZERO
    overlap: Overlap = Overlap.ALLOW
    missed: Missed = Missed.LAST
    missed_limit: int = USUAL_MISSED_LIMIT
    late_limit: timedelta = USUAL_LATE_LIMIT

    @property
    def anchor_at(self) -> datetime:
        """From when `every` counts."""
        return self.start_at or self.recorded_at


def next_fire(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first fire time after an instant, None if there is none. Whether the schedule is enabled does not
    matter."""
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - MILLISECOND)
    found = _next(schedule, after)
    return None if found is None or (schedule.end_at is not None and found > schedule.end_at) else found


def last_fire(schedule: Schedule, upto: datetime) -> datetime | None:
    """Return the last fire time up to and including an instant, None if there was none."""
    if schedule.end_at is not None:
        upto = min(upto, schedule.end_at)
    found = _last(schedule, upto)
    return None if found is None or (schedule.start_at is not None and found < schedule.start_at) else found


def fire_times_between(schedule: Schedule, after: datetime, upto: datetime) -> Iterator[datetime]:
    """Yield the fire times after one instant up to and including another, oldest first."""
    fire_time = next_fire(schedule, after)
    while fire_time is not None and fire_time <= upto:
        yield fire_time
        fire_time = next_fire(schedule, fire_time)


def fire_times_back(schedule: Schedule, upto: datetime, after: datetime) -> Iterator[datetime]:
    """Yield the same fire times newest first."""
    fire_time = last_fire(schedule, upto)
    while fire_time is not None and fire_time > after:
        yield fire_time
        fire_time = last_fire(schedule, fire_time - MILLISECOND)


def due_time(schedule: Schedule, fire_time: datetime) -> datetime:
    """Return when the job of a fire time is due: at the fire time or, with jitter, some time between it and the next fire
    time.

    It depends only on the name and the fire time, so it is the same on every machine and at every try.
    """
    if schedule.jitter == ZERO:
        return fire_time
    following = next_fire(schedule, fire_time)
    room = schedule.jitter if following is None else min(schedule.jitter, following - fire_time)
    drawn = int.from_bytes(hashlib.sha256(f"{schedule.name}\n{to_ms(fire_time)}".encode()).digest()[:8])
    return fire_time + (span_ms(room) * drawn >> 64) * MILLISECOND


def job_of(schedule: Schedule, id: str, *, fire_time: datetime | None = None, delay: timedelta | None = None) -> NewJob:
    """Return the job of a fire time, due when its jitter says. Without a fire time it is the job of a caller's trigger, and
    with a delay that of a backfill. The due times of these two count from when they are added."""
    return NewJob(
        id=id,
        type=schedule.type,
        name=schedule.name,
        queue=schedule.queue,
        priority=schedule.priority,
        payload=schedule.payload,
        at=None if fire_time is None or delay is not None else due_time(schedule, fire_time),
        delay=delay,
        max_retries=schedule.max_retries,
        retry_delay=schedule.retry_delay,
        timeout=schedule.timeout,
        tags=schedule.tags,
        webhook_url=schedule.webhook_url,
    )


def preview(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """Return the next fire times after an instant, in UTC, at most `count` of them."""
    found = list[datetime]()
    while len(found) < count and (fire_time := next_fire(schedule, found[-1] if found else after)) is not None:
        found.append(fire_time)
    return found


def why_unreadable(schedule: Schedule) -> str | None:
    """Return why this process cannot say when a schedule fires, None if it can. Another machine may know a zone, and another
    version an expression, that this one does not."""
    try:
        next_fire(schedule, schedule.recorded_at)
    except Invalid as problem:
        return f"{problem.field}: {problem.reason}"
    return None


def say_schedule(schedule: Schedule) -> str:
    """Return in words when a schedule fires: `every day at 03:00, Europe/Madrid`. Of an expression that this version cannot
    read, return its text."""
    words = [_say_when(schedule)]
    if schedule.start_at is not None:
        words.append(f"from {timestamp(schedule.start_at)}")
    if schedule.end_at is not None:
        words.append(f"until {timestamp(schedule.end_at)}")
    if schedule.jitter:
        words.append(f"up to {say(schedule.jitter)} later")
    return ", ".join(words)


def _next(schedule: Schedule, after: datetime) -> datetime | None:
    if schedule.cron is not None:
        return _next_by_wall_clock(schedule.cron, schedule.timezone, after.astimezone(UTC))
    if schedule.every is not None:
        passed = (after - schedule.anchor_at) // schedule.every
        return schedule.anchor_at + max(passed + 1, 0) * schedule.every
    moments = schedule.at or ()
    place = bisect_right(moments, after)
    return moments[place] if place < len(moments) else None


@lru_cache(maxsize=4096)
def _next_by_wall_clock(cron: str, timezone: str, after: datetime) -> datetime | None:
    """Return the next fire time of an expression. Cached, because many schedules share popular times."""
    return read_cron(cron).next(after, wall_clock(timezone))


def _last(schedule: Schedule, upto: datetime) -> datetime | None:
    if schedule.cron is not None:
        return read_cron(schedule.cron).last(upto.astimezone(UTC), wall_clock(schedule.timezone))
    if schedule.every is not None:
        passed = (upto - schedule.anchor_at) // schedule.every
        return None if passed < 0 else schedule.anchor_at + passed * schedule.every
    moments = schedule.at or ()
    place = bisect_right(moments, upto)
    return moments[place - 1] if place else None


def _say_when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{_say_cron(schedule.cron)}, {schedule.timezone}"
    if schedule.every is not None:
        return f"every {_say_span(schedule.every)}"
    moments = schedule.at or ()
    return f"at {timestamp(moments[0])}" if len(moments) == 1 else f"at {len(moments)} moments from {timestamp(moments[0])}"


_UNITS = {name: timedelta(**{f"{name}s": 1}) for name in ("day", "hour", "minute", "second")}


def _say_span(span: timedelta) -> str:
    """Return a span in its largest whole unit: `2 hours`, `90 seconds`, and `hour` for one of them."""
    for word, unit in _UNITS.items():
        if span % unit == ZERO:
            return word if span == unit else f"{span // unit} {word}s"
    return say(span)


def _say_cron(cron: str) -> str:
    try:
        return read_cron(cron).say()
    except Invalid:
        return cron
