"""The clocks of a host. Engines that have no clock of their own read these; tests and simulations turn their own."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

DRIFT = 100.0  # microseconds in a second by which two clocks may differ in speed


class Clock(Protocol):
    """Wall time for people, boot time for leases: a jump of the wall clock moves no lease."""

    def wall_us(self) -> int:
        """Microseconds since 1970; stores keep milliseconds, and sleepers wake to the exact moment."""
        ...

    def boot(self) -> int:
        """Milliseconds since this boot, suspends included; never goes back."""
        ...

    def boot_id(self) -> str:
        """Names this boot: leases of another boot have lapsed."""
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
    """How far a clock elsewhere is ahead of this machine's monotonic one, in microseconds.

    What that clock said was read at some time between the asking and the answer. Where several looks overlap, the distance
    is known better than by any of them; with time each tells less, since clocks drift.
    """

    def __init__(self) -> None:
        self._least = self._most = self._at = 0.0

    def learn(self, there_us: int, asked: float, answered: float) -> None:
        """Note what that clock said between two times of this one, in seconds. It speaks in whole microseconds, so it was
        at that one or within the next."""
        least, most = there_us - answered * 1e6, there_us + 1 - asked * 1e6
        loose = (answered - self._at) * DRIFT
        self._least, self._most = max(self._least - loose, least), min(self._most + loose, most)
        if self._least > self._most:  # it was stepped, or nothing was known yet
            self._least, self._most = least, most
        self._at = answered

    def there_us(self, now: float) -> int:
        """What that clock says at a time of this one."""
        return int(now * 1e6 + (self._least + self._most) / 2)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
