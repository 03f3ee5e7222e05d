"""Leases after a time in which no process could write.

While one process keeps the lock, no worker can renew its leases. When the lock is free again, whoever came first would take
over what runs well elsewhere. So a process that had to wait judges leases by the clock as it was when its wait began, for as
long as a worker takes to renew. Takeovers are guarded by the token of the lease, so two processes that judge by different
clocks cannot both have a job.
"""

SPARING = 10_000  # milliseconds, if no lease was seen yet: how often leases of the usual length are renewed


class Stall:
    """The last time in which a process could not write, on the clock of leases, in milliseconds. Shared by all of its
    connections to one file."""

    __slots__ = ("_began", "_over", "_until", "renewed_every")

    def __init__(self) -> None:
        self.renewed_every = SPARING
        self._began: int | None = None
        self._over = False
        self._until = 0

    @property
    def ended(self) -> bool:
        """Whether writes are possible, as far as this process knows."""
        return self._began is None or self._over

    def goes_on(self, since: int) -> None:
        """A wait that began at this time was given up."""
        if self.ended:
            self._began, self._over = since, False

    def is_over(self, since: int, now: int) -> None:
        """A wait that began at this time was long, and has come to its end, or one that was given up before has."""
        if self.ended:
            self._began = since
        self._over, self._until = True, now + self.renewed_every

    def spared_until(self, now: int) -> int | None:
        """Until when lapsed leases are left alone; None if they are not, or if writes are still impossible."""
        if self._over and now >= self._until:
            self._began, self._over = None, False
        return self._until if self._over else None

    def lease_clock(self, now: int) -> int:
        """The time by which leases are judged."""
        if self._began is None:
            return now
        self.spared_until(now)
        return now if self._began is None else min(self._began, now)
