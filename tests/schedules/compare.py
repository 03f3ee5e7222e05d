"""Compares the fire times of demora with those of the oracle, around the times at which clocks are set and on plain days."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from demora.core.schedules.cron import read_cron
from demora.core.schedules.wall_clock import wall_clock
from demora.errors import Invalid
from tests.schedules import oracle

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
BY_MINUTE = (
    *("30 2 * * *", "0 0 * * *", "*/15 0-3 * * *", "5,35 1,2,3,23 * * *", "0 0-23 * * *", "59 23 L * *", "0 2 * * SUN"),
    *("30 1 * * SUN#2", "15 0,2 * MAR,OCT SUN-SAT", "*/7 2 * * *", "0 3 LW * *", "10 1 1-7 * 0L", "45 0-2,22-23/1 */2 * *"),
    *(
        "*/5 * * * *",
        "0 * * * *",
        "30 */2 * * *",
        "17 */3 * * *",
        "*/30 * L * *",
        "1-59/4 *,2 * * 7",
        "20 */6 1,15 * FRI",
        "0 2-2/3 * * *",
    ),
)
BY_SECOND = (
    *("15 30 2 * * *", "*/10 * 2 * * *", "30 */20 0-3 * * *", "59 59 23 * * *", "1 0 0 * * SUN"),
    *("*/20 */7 * * * *", "59 59 */1 * * *", "30 0 */2 * * *"),
)


class Window(NamedTuple):
    """A span in which all fire times of an expression are compared."""

    zone: str
    expression: str
    begin: datetime
    end: datetime

    def __str__(self) -> str:
        return f"{self.expression!r} in {self.zone} from {self.begin:%Y-%m-%dT%H:%M:%SZ} to {self.end:%Y-%m-%dT%H:%M:%SZ}"


class Difference(Exception):
    """demora and the oracle disagree."""

    def __init__(self, window: Window, ours: list[datetime], theirs: list[datetime], way: str) -> None:
        only = [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in sorted(set(ours) - set(theirs))[:5]]
        lacks = [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in sorted(set(theirs) - set(ours))[:5]]
        super().__init__(f"{window}, {way}: only demora has {only}, only the oracle has {lacks}")


def windows(zone: str, first: int, last: int, *, seed: int = 0) -> Iterator[Window]:
    """Windows around every change of the clock in these years, and one on a plain day of each year."""
    chance = random.Random(f"{seed} {zone}")
    for hour in oracle.transitions(zone, first, last):
        for expression in chance.sample(BY_MINUTE, 3):
            yield Window(zone, expression, hour - 30 * HOUR, hour + 30 * HOUR)
        yield Window(zone, chance.choice(BY_SECOND), hour - HOUR, hour + 4 * HOUR)
    for year in range(first, last + 1):
        day = datetime(year, 1, 1, tzinfo=UTC) + chance.randrange(364) * 24 * HOUR
        yield Window(zone, chance.choice(BY_MINUTE), day, day + 24 * HOUR)
        yield Window(zone, random_expression(chance), day, day + 24 * HOUR)


def random_expression(chance: random.Random) -> str:
    """An expression of five fields that demora accepts."""
    while True:
        fields = (
            random_field(chance, 0, 59),
            random_field(chance, 0, 23),
            random_field(chance, 1, 31, "L", "LW"),
            random_field(chance, 1, 12, *oracle.MONTHS),
            random_field(chance, 0, 7, "5L", "0L", "7L", "MON#2", "7#1", "0#5", "3#4", *oracle.DAYS),
        )
        try:
            read_cron(" ".join(fields))
        except Invalid:
            continue
        return " ".join(fields)


def random_field(chance: random.Random, least: int, most: int, *others: str) -> str:
    return ",".join(random_part(chance, least, most, *others) for _ in range(chance.choice([1, 1, 1, 2, 3])))


def random_part(chance: random.Random, least: int, most: int, *others: str) -> str:
    low, high = sorted((chance.randint(least, most), chance.randint(least, most)))
    step = chance.randint(1, most)
    parts = ["*", f"*/{step}", f"{low}", f"{low}-{high}", f"{low}-{high}/{step}", f"{low}-{low}/{step}", f"{low}/{step}"]
    return chance.choice(others) if others and chance.random() < 0.3 else chance.choice(parts)


def compare(window: Window) -> int:
    """Return the number of fire times in a window. Raises `Difference` unless demora finds the same ones, forwards and
    backwards."""
    theirs = list(oracle.fire_times(window.expression, window.zone, window.begin, window.end))
    cron, clock = read_cron(window.expression), wall_clock(window.zone)
    ours, at = list[datetime](), window.begin - SECOND
    while (found := cron.next(at, clock)) is not None and found <= window.end:
        ours.append(found)
        at = found
    if ours != theirs:
        raise Difference(window, ours, theirs, "forwards")
    back, at = list[datetime](), window.end
    while (found := cron.last(at, clock)) is not None and found >= window.begin:
        back.append(found)
        at = found - SECOND
    if back[::-1] != theirs:
        raise Difference(window, back, theirs, "backwards")
    return len(theirs)
