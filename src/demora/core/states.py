"""The states of a job and the one table of the moves between them."""

from enum import IntEnum


class Status(IntEnum):
    """The state of a job. The numbers are stored. Waiting states come first, then PROCESSING, then the ends."""

    PENDING = 0
    QUEUED = 1
    RETRYING = 2
    PROCESSING = 3
    COMPLETED = 4
    FAILED = 5
    CANCELLED = 6

    def __str__(self) -> str:
        return self.name

    @property
    def waiting(self) -> bool:
        return self < Status.PROCESSING

    @property
    def ended(self) -> bool:
        return self > Status.PROCESSING


WAITING = frozenset(s for s in Status if s.waiting)
ENDED = frozenset(s for s in Status if s.ended)

# No job is PENDING in this version: the state is reserved for jobs that wait for other jobs. A waiting job fails if no live
# worker has known its type for an hour. Only a retry by hand and the undoing of a cancel lead out of an end.
MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.QUEUED, Status.CANCELLED}),
    Status.QUEUED: frozenset({Status.PROCESSING, Status.FAILED, Status.CANCELLED}),
    Status.RETRYING: frozenset({Status.PROCESSING, Status.FAILED, Status.CANCELLED}),
    Status.PROCESSING: frozenset(
        {Status.QUEUED, Status.RETRYING, Status.COMPLETED, Status.FAILED, Status.CANCELLED},
    ),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.QUEUED}),
    Status.CANCELLED: frozenset({Status.QUEUED, Status.RETRYING}),
}

RETRYABLE = frozenset(s for s in ENDED if MOVES[s])
