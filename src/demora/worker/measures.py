"""The facts about its claims and runs that a worker reports, for metrics."""

from collections.abc import Callable
from datetime import timedelta

from ..core.states import Status
from ..store.jobs import ClaimedJob, Lease, Settlement


class Measures:
    """Takes the facts of one worker, and ignores them: a subclass measures. The worker calls it on its own loop, so a method
    must return at once and must not raise."""

    def working(self, slots: int, busy: Callable[[], int]) -> None:
        """The worker has started with this many slots. `busy` returns how many are taken; any thread may call it."""

    def claimed(self, seconds: float) -> None:
        """A claim returned after this many seconds, with or without jobs."""

    def started(self, job: ClaimedJob, *, waited: float, now: float) -> None:
        """A run began, this many seconds after the worker had claimed its job. `now` is the wall clock, in seconds."""

    def ended(self, job: ClaimedJob, ran: timedelta | None) -> None:
        """A job is about to be settled. `ran` is how long it ran, None if it was never started."""

    def recorded(self, seconds: float) -> None:
        """The store has recorded a batch of settlements in this many seconds."""

    def settled(self, settlement: Settlement, status: Status | None) -> None:
        """The store has answered with the new status of a job that had ended; None if its lease was lost."""

    def lost(self, lease: Lease) -> None:
        """The worker lost the lease of a job that had not ended."""

    def lapsed(self, leases: int) -> None:
        """The worker settled this many lapsed leases, of workers that have died or could not renew them."""
