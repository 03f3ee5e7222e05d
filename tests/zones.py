"""A time zone whose rules a test sets, changes and takes away, as a newer database of zones or another machine would."""

import struct
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from demora.core.schedules import schedule, wall_clock

PLACE = "Demo/Place"


class Zones:
    """The zones of this process, with some of the test's own. A zone has the same offset at all times."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(self, offset: timedelta, zone: str = PLACE) -> None:
        path = self._folder / zone
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_tzif(offset))
        forget()

    def take_away(self, zone: str = PLACE) -> None:
        (self._folder / zone).unlink()
        forget()


@contextmanager
def own_zones(folder: Path) -> Iterator[Zones]:
    """Read zones from this folder first, until the end of the block."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(folder.absolute()), *before])
    try:
        yield Zones(folder)
    finally:
        zoneinfo.reset_tzpath(before)
        forget()


def forget() -> None:
    """Drop what this process remembers of zones, as a restart would."""
    zoneinfo.ZoneInfo.clear_cache()
    wall_clock._clock.cache_clear()
    schedule._next_by_wall_clock.cache_clear()


def _tzif(offset: timedelta) -> bytes:
    """A file of the zone database: no changes, one type of local time, named XXX."""
    header = b"TZif\0" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    return header + struct.pack(">lBB", int(offset.total_seconds()), 0, 0) + b"XXX\0"
