"""A clock that tests turn by hand."""

from datetime import datetime, timedelta

from demora.core.spans import from_ms


class TestClock:
    """Wall and boot time that stand still until they are turned."""

    __test__ = False

    def __init__(self) -> None:
        self._wall = 1_800_000_000_000
        self._boot = 5_000_000
        self._boot_id = "first boot"

    def wall(self) -> int:
        return self._wall

    def wall_us(self) -> int:
        return self._wall * 1000

    def boot(self) -> int:
        return self._boot

    def boot_id(self) -> str:
        return self._boot_id

    def now(self) -> datetime:
        return from_ms(self._wall)

    def turn(self, seconds: float = 0, *, ms: int = 0) -> None:
        """Let time pass."""
        passed = round(seconds * 1000) + ms
        self._wall += passed
        self._boot += passed

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP does: no time passes."""
        self._wall += round(seconds * 1000)

    def reboot(self, down: timedelta = timedelta(minutes=1)) -> None:
        """Start the machine anew: its boot time begins again."""
        self._wall += down // timedelta(milliseconds=1)
        self._boot = 1_000
        self._boot_id += ", and another"
