"""The wall clock of a time zone, and what happens to it when it is set forward or back.

Instants are aware and in UTC. Wall-clock times are naive. Both are whole seconds here. The rules come from the zone database
of `zoneinfo`.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from ...errors import Invalid

SECOND = timedelta(seconds=1)
MOST_ZONE = 64

_EXAMPLES = "write for instance 'UTC' or 'Europe/Madrid'"
OF_THE_MACHINE = frozenset({"localtime", "posixrules"})  # files of the database that mean another zone on every machine


class WallClock:
    """The clock on the wall of one zone."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone

    def at(self, instant: datetime) -> datetime:
        """Return what the clock shows. `fold` is 1 if it shows this time for the second time."""
        return instant.astimezone(self._zone).replace(tzinfo=None)

    def instants(self, wall: datetime) -> tuple[datetime, ...]:
        """Return when the clock shows this time: once, twice if it was set back, never if it was set forward over it."""
        first, second = self._both(wall)
        if first == second:
            return (first,)
        return (first, second) if first < second else ()

    def transition(self, wall: datetime) -> datetime:
        """Return when the clock was set, forward over this time or back to it. The time must be one that comes never or
        twice."""
        before, after = sorted(self._both(wall))
        old = self._offset(before)
        while after - before > SECOND:
            middle = before + (after - before) // (2 * SECOND) * SECOND
            before, after = (middle, after) if self._offset(middle) == old else (before, middle)
        return after

    def reached(self, instant: datetime) -> datetime:
        """Return the latest time that the clock has shown up to this instant. It differs from `at` where the clock was set
        back and shows a time again."""
        wall = self.at(instant)
        return self.at(self.transition(wall) - SECOND) if wall.fold else wall

    def _both(self, wall: datetime) -> tuple[datetime, datetime]:
        """Return the instants of this time by the offsets before and after a change; equal if there is no change."""
        return tuple(wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))  # type: ignore[return-value]

    def _offset(self, instant: datetime) -> timedelta | None:
        return instant.astimezone(self._zone).utcoffset()


def wall_clock(zone: str) -> WallClock:
    """Return the clock of a zone. `Invalid` names the field `timezone`."""
    if not isinstance(zone, str):
        raise Invalid("timezone", f"must be text, not {type(zone).__name__}; {_EXAMPLES}")
    return _clock(zone)


@lru_cache(1024)
def _clock(zone: str) -> WallClock:
    if 1 <= len(zone) <= MOST_ZONE and zone not in OF_THE_MACHINE:
        try:
            return WallClock(ZoneInfo(zone))
        except (OSError, ValueError, KeyError):  # a folder, a path that leaves the database, no such zone
            pass
    raise Invalid("timezone", f"{zone[:MOST_ZONE]!r} is not a zone of the IANA database; {_EXAMPLES}")
