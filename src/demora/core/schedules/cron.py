"""Cron expressions: which wall-clock times match one, and at which instants it fires in a time zone.

`cronsim` reads an expression and walks the wall-clock times that match, as naive times only. What happens when clocks are
set forward or back is decided here, in the same way for five and for six fields.

- An expression whose hour field begins with `*` follows real time. It fires at every instant at which the wall clock shows a
  matching time: never if the clock skips that time, and twice if the clock shows it twice.
- Any other expression fires once for each matching time. A time that does not exist fires at the first instant after the
  gap, and a time that comes twice fires the first time.

Matching times that fall on one instant are one fire time.
"""

import re
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from ...errors import Invalid
from .cron_words import say_cron
from .wall_clock import SECOND, WallClock

EXAMPLES = "write for instance '0 3 * * *' (every day at 03:00), '*/10 * * * * *' (every ten seconds) or '@daily'"
MOST_CRON = 200
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIELDS = {  # by the names of cronsim: what may stand there, and how many values there are
    "second": ("0 to 59", 60),
    "minute": ("0 to 59", 60),
    "hour": ("0 to 23", 24),
    "day-of-month": ("1 to 31, L (the last day) or LW (the last weekday)", 31),
    "month": ("1 to 12 or JAN to DEC", 12),
    "day-of-week": ("0 to 7 or SUN to SAT (0 and 7 are Sunday), 5L (the last Friday) or MON#2 (the second Monday)", 7),
}
_STEP = re.compile(r"/([0-9]+)(?:,|$)")
_STEP_OF_ONE = re.compile(r"\b(\w+)-\1/[1-9][0-9]*")  # 5-5/2 is 5, but cronsim reads it as 5/2
_STEP_OF_LAST = re.compile(r"LW?/")  # cronsim takes it, and ignores the step
_ORDINAL = re.compile(r"\b([2-5][123])th\b")  # as cronsim writes them
_ENDINGS = {"1": "st", "2": "nd", "3": "rd"}
_ANY_YEARS = datetime(2000, 1, 1)  # from here, 50 years have every kind of month and leap day


class Cron:
    """A cron expression that fires at some time."""

    def __init__(self, text: str) -> None:
        self._fields = _fields(text)
        self._expression = " ".join(self._fields)
        self.follows_real_time = self._fields[-4].startswith("*")
        if self._next(_ANY_YEARS) is None:
            raise Invalid("cron", f"{text!r} never fires: no date matches; {EXAMPLES}")

    def next(self, after: datetime, clock: WallClock) -> datetime | None:
        """Return the first fire time after an instant; None if there is none within 50 years."""
        after = after.replace(microsecond=0)
        if self.follows_real_time:
            return self._next_real(after, clock)
        wall = self._next(clock.reached(after))
        return None if wall is None else _once(wall, clock)

    def last(self, upto: datetime, clock: WallClock) -> datetime | None:
        """Return the last fire time up to and including an instant; None if there was none within 50 years."""
        upto = upto.replace(microsecond=0)
        if self.follows_real_time:
            return self._last_real(upto, clock)
        wall = self._last(clock.reached(upto))
        return None if wall is None else _once(wall, clock)

    def say(self) -> str:
        """Return the expression in words: `every day at 03:00`."""
        if (usual := say_cron(self._fields)) is not None:
            return usual
        words = _ORDINAL.sub(
            lambda found: f"{found[1]}{_ENDINGS[found[1][-1]]}", CronSim(self._expression, _ANY_YEARS).explain()
        )
        return words[:1].lower() + words[1:]

    def _next_real(self, after: datetime, clock: WallClock) -> datetime | None:
        shown = clock.at(after)
        wall = self._next(shown)
        while wall is not None and not clock.instants(wall):
            wall = self._next(clock.at(clock.transition(wall)) - SECOND)
        found = [] if wall is None else [at for at in clock.instants(wall) if at > after]
        if not shown.fold and len(clock.instants(shown)) == 2:  # the clock will be set back to times before this one
            again = self._next(clock.at(clock.transition(shown)).replace(fold=0) - SECOND)
            found += [] if again is None else [at for at in clock.instants(again) if at > after]
        return min(found, default=None)

    def _last_real(self, upto: datetime, clock: WallClock) -> datetime | None:
        shown = clock.at(upto)
        wall = self._last(shown)
        while wall is not None and not clock.instants(wall):
            wall = self._last(clock.at(clock.transition(wall) - SECOND))
        found = [] if wall is None else [at for at in clock.instants(wall) if at <= upto]
        if shown.fold:  # the clock was set back from times after this one
            before = self._last(clock.reached(upto))
            found += [] if before is None else [at for at in clock.instants(before) if at <= upto]
        return max(found, default=None)

    def _next(self, wall: datetime) -> datetime | None:
        """Return the first matching wall-clock time after this one."""
        return _match(self._expression, wall.replace(fold=0))

    def _last(self, wall: datetime) -> datetime | None:
        """Return the last matching wall-clock time up to and including this one."""
        return _match(self._expression, wall.replace(fold=0) + SECOND, back=True)


def read_cron(text: str) -> Cron:
    """Return the expression. `Invalid` names the field `cron`, says what is wrong and shows a right example."""
    if not isinstance(text, str) or not text.isascii() or len(text) > MOST_CRON:
        raise Invalid("cron", f"must be text of at most {MOST_CRON} plain characters; {EXAMPLES}")
    return _read(text)


_read = lru_cache(16_384)(Cron)


@lru_cache(16_384)  # many schedules fire at the same popular times
def _match(expression: str, wall: datetime, *, back: bool = False) -> datetime | None:
    """Return the first matching time after this one or, going back, the last one before it."""
    return next(CronSim(expression, wall, reverse=back), None)


def _once(wall: datetime, clock: WallClock) -> datetime:
    """Return the one instant of a matching time."""
    instants = clock.instants(wall)
    return instants[0] if instants else clock.transition(wall)


def _fields(text: str) -> list[str]:
    """Return the five or six fields in capitals, each of them checked."""
    given = text.strip()
    if given.startswith("@"):
        if given.lower() not in MACROS:
            raise Invalid("cron", f"{given!r} is not known; write one of {', '.join(MACROS)}")
        given = MACROS[given.lower()]
    fields = _STEP_OF_ONE.sub(r"\1", given.upper()).split()
    if len(fields) not in (5, 6):
        raise Invalid("cron", f"{text!r} has {len(fields)} fields; 5 or 6 are expected (6: seconds first); {EXAMPLES}")
    for name, field in zip(list(_FIELDS)[-len(fields) :], fields, strict=True):
        _check_field(name, field)
    try:
        CronSim(" ".join(fields), _ANY_YEARS)
    except CronSimError:
        raise Invalid("cron", f"{text!r} never fires: no month has such a day; {EXAMPLES}") from None
    return fields


def _check_field(name: str, field: str) -> None:
    allowed, values = _FIELDS[name]
    steps = [int(step) for step in _STEP.findall(field)]
    if any(step >= values for step in steps):
        raise Invalid("cron", f"{field!r} has a step of {max(steps)}, but the {name} has only {values} values; {EXAMPLES}")
    alone = ["0", "0", "0", "*", "*", "*"]
    alone[list(_FIELDS).index(name)] = field
    if name == "day-of-month":
        alone[-1] = "1"  # a weekday beside it: whether any month has such a day is asked later
    try:
        if _STEP_OF_LAST.search(field):
            raise CronSimError
        CronSim(" ".join(alone), _ANY_YEARS)
    except CronSimError:
        raise Invalid(
            "cron", f"{field!r} is not a valid {name}; allowed is {allowed}, *, ranges (1-5), lists (1,15), steps (*/5)"
        ) from None
