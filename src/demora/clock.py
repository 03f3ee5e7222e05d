"""The clocks of a host. Engines that have no clock of their own read these; tests and simulations turn their own."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol


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


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
