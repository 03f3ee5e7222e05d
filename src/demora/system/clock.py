"""The clocks of this machine, for engines whose database has none, and the version of its time zones. Tests and simulations
use clocks of their own."""

import functools
import subprocess
import sys
import time
import zoneinfo
from importlib import import_module
from pathlib import Path
from typing import Protocol

_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
DRIFT = 100.0  # microseconds in a second by which two clocks may differ in speed


class Clock(Protocol):
    """Wall time for due times, boot time for leases, so that a jump of the wall clock moves no lease."""

    def wall_us(self) -> int:
        """Return microseconds since 1970. Stores keep milliseconds; the rest lets waiters wake on time."""
        ...

    def boot(self) -> int:
        """Return milliseconds since this boot, including time asleep; never goes back."""
        ...

    def boot_id(self) -> str:
        """Return the id of this boot. Leases of another boot have lapsed."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def boot(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000

    def boot_id(self) -> str:
        if sys.platform == "darwin":
            asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True)
            return asked.stdout.strip()
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Distance:
    """How far a remote clock is ahead of this machine's monotonic clock, in microseconds.

    The remote clock was read at some time between a request and its answer, so each reading bounds the distance. Several
    readings together bound it more closely. An old reading counts for less, since clocks drift.
    """

    def __init__(self) -> None:
        self._least = self._most = self._at = 0.0

    def learn(self, there_us: int, asked: float, answered: float) -> None:
        """Add a reading of the remote clock that was taken between two times of this one, in seconds. The reading is cut to
        whole microseconds, so the true value is less than one microsecond later."""
        least, most = there_us - answered * 1e6, there_us + 1 - asked * 1e6
        loose = (answered - self._at) * DRIFT
        self._least, self._most = max(self._least - loose, least), min(self._most + loose, most)
        if self._least > self._most:  # the remote clock was set, or this is the first reading
            self._least, self._most = least, most
        self._at = answered

    def there_us(self, now: float) -> int:
        """Return the time of the remote clock at a time of this one."""
        return int(now * 1e6 + (self._least + self._most) / 2)


UNKNOWN = "0"  # sorts before every known version of the time zones


@functools.cache
def zones_version() -> str:
    """Return the version of the IANA database, such as `2026a`: that of the system or, where it has none, of `tzdata`."""
    for folder in zoneinfo.TZPATH:
        for read in (_of_rules, _of_folder):
            if version := read(Path(folder)):
                return version
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except ImportError:
        return UNKNOWN


def _of_rules(folder: Path) -> str | None:
    """Read the first line of the compact rules: `# version 2026a`."""
    try:
        with (folder / "tzdata.zi").open() as rules:
            return rules.readline().removeprefix("# version").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _of_folder(folder: Path) -> str | None:
    try:
        return (folder / "+VERSION").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
