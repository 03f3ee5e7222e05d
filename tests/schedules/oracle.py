"""When a cron expression fires, found by walking the clock step by step. It is written from the rules in
docs/explanation/schedules.md and shares no code with demora or cronsim.

At every instant the wall clock of the zone is read. An expression that follows real time fires if the clock shows a matching
time. Any other expression fires if the clock has just reached a matching time: the walk remembers the latest time that the
clock has shown, and all times from there to the present one are reached now. A clock that jumps forward reaches all the
times that it leaves out at once, and a clock that was set back reaches none until it has caught up.
"""

from calendar import day_abbr, month_abbr, monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MONTHS = {month_abbr[n].upper(): n for n in range(1, 13)}
DAYS = {day_abbr[n - 1].upper(): n for n in range(7)}


class Pattern(NamedTuple):
    """An expression as sets of numbers; days are asked one by one, because they depend on the month."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: str
    months: frozenset[int]
    weekdays: str
    real: bool

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and day_matches(self.days, self.weekdays, wall.date())
        )


def read(expression: str) -> Pattern:
    fields = expression.upper().split()
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    return Pattern(
        numbers(second, 0, 59),
        numbers(minute, 0, 59),
        numbers(hour, 0, 23),
        day,
        numbers(month, 1, 12, MONTHS),
        weekday,
        hour[0] == "*",
    )


def numbers(field: str, first: int, last: int, names: dict[str, int] | None = None) -> frozenset[int]:
    found = set[int]()
    for part in field.split(","):
        extent, _, step = part.partition("/")
        low, dash, high = extent.partition("-")
        begin = first if low == "*" else (names or {}).get(low) or int(low)
        end = last if low == "*" or (step and not dash) else begin
        if dash:
            end = (names or {}).get(high) or int(high)
        found |= set(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


@cache
def day_matches(days: str, weekdays: str, day: date) -> bool:
    of_month = any(part_of_month(part, day) for part in days.split(","))
    of_week = any(part_of_week(part, day) for part in weekdays.split(","))
    both = days[0] == "*" or weekdays[0] == "*"
    return of_month and of_week if both else of_month or of_week


def part_of_month(part: str, day: date) -> bool:
    end = date(day.year, day.month, monthrange(day.year, day.month)[1])
    if part == "L":
        return day == end
    if part == "LW":
        while end.isoweekday() > 5:
            end -= timedelta(days=1)
        return day == end
    return day.day in numbers(part, 1, 31)


def part_of_week(part: str, day: date) -> bool:
    today = {day.isoweekday(), day.isoweekday() % 7}  # Sunday is 7 and 0
    if part.endswith("L"):
        return int(part[:-1]) in today and (day + timedelta(days=7)).month != day.month
    if "#" in part:
        name, nth = part.split("#")
        return DAYS.get(name, int(name) if name.isdigit() else -1) in today and (day.day - 1) // 7 + 1 == int(nth)
    for name, number in DAYS.items():
        part = part.replace(name, str(number))
    return bool(today & numbers(part, 0, 7))


def fire_times(expression: str, zone: str, begin: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the fire times from `begin` to `end`, both whole steps: minutes, or seconds if the expression has them. The
    clock must not have been set back just before `begin`."""
    pattern, clock = read(expression), ZoneInfo(zone)
    step = timedelta(minutes=1) if pattern.seconds == {0} else timedelta(seconds=1)
    reached = (begin - step).astimezone(clock).replace(tzinfo=None, fold=0)
    at = begin
    while at <= end:
        wall = at.astimezone(clock).replace(tzinfo=None, fold=0)
        if pattern.real:
            fires = pattern.matches(wall)
        else:
            fires = False
            while reached < wall:
                reached += step
                fires = pattern.matches(reached) or fires
        if fires:
            yield at
        at += step


def transitions(zone: str, first: int, last: int) -> list[datetime]:
    """The beginnings of the hours within which the clock of a zone is set, from one year to another."""
    clock, found = ZoneInfo(zone), list[datetime]()
    at, end, step = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC), timedelta(hours=12)
    before = at.astimezone(clock).utcoffset()
    while at < end:
        at += step
        offset = at.astimezone(clock).utcoffset()
        if offset != before:
            part = at - step
            while (part + timedelta(hours=1)).astimezone(clock).utcoffset() == before:
                part += timedelta(hours=1)
            found.append(part)
            before = offset
    return found
