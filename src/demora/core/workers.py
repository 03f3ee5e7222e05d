"""Workers: which queues they serve and in which order, which types they know, and whether jobs take all of their slots.

A job counts for the worker that holds its lease. A worker may hold a few more jobs than it has slots, because it prefetches.
A claim parks jobs of types that its worker does not know. A parked job fails after `NO_HANDLER_GRACE` in which no live
worker knew its type.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ..errors import Invalid
from .action import OWN_QUEUES
from .request import check_queue
from .spans import span_ms
from .verdict import NO_HANDLER_GRACE

LIVE_WITHIN = timedelta(seconds=30)  # a worker or another process is live for so long after its last heartbeat
HEARTBEAT_EVERY = timedelta(seconds=10)  # so that a process that misses two heartbeats is still live
RENEWALS_IN_A_LEASE = 3  # a worker renews a lease when a third of it has passed
UNWIND = timedelta(seconds=5)  # that a timed-out run has to end; its lease may be renewed until then


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker as it registers itself. The engine sets the times. `paces` is what its settings say about paces."""

    id: str
    host: str
    pid: int
    slots: int
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    started_at: datetime | None = None
    heartbeat_ago: timedelta = timedelta(0)
    paces: str = ""

    @property
    def live(self) -> bool:
        return self.heartbeat_ago < LIVE_WITHIN


class Running(msgspec.Struct, frozen=True):
    """The running jobs of one worker and type: their number, the id and the start of the one that has run longest, and the
    start of the newest one."""

    worker_id: str
    type: str
    jobs: int
    longest_id: str
    since: datetime
    latest_at: datetime


class TakenSlots(msgspec.Struct, frozen=True):
    """The jobs of workers that have no free slot.

    `by_type` counts the jobs, the most frequent type first. `longest` are those that have run longest. No slot has become
    free since `latest_at`.
    """

    slots: int
    by_type: tuple[tuple[str, int], ...]
    longest: tuple[Running, ...]
    latest_at: datetime


MOST_NAMED = 3  # jobs and types that a text names


def serves(worker: WorkerRecord, queue: str) -> bool:
    """Whether a worker claims from this queue. Every worker claims from demora's own queues."""
    return not worker.queues or queue in worker.queues or queue in OWN_QUEUES


def knows_type(live: Iterable[WorkerRecord], queue: str, type: str) -> bool | None:
    """Whether one of these workers serves the queue and knows the type; None if none of them serves the queue."""
    serving = [worker for worker in live if serves(worker, queue)]
    return any(type in worker.types for worker in serving) if serving else None


def all_taken(workers: Sequence[WorkerRecord], running: Iterable[Running]) -> TakenSlots | None:
    """Return what takes the slots of these workers; None if one of them has a free slot, or if there are no workers."""
    theirs = [one for one in running if any(one.worker_id == worker.id for worker in workers)]
    jobs, types = Counter[str](), Counter[str]()
    for one in theirs:
        jobs[one.worker_id] += one.jobs
        types[one.type] += one.jobs
    if not workers or any(jobs[worker.id] < worker.slots for worker in workers):
        return None
    longest = tuple(sorted(theirs, key=lambda one: (one.since, one.longest_id))[:MOST_NAMED])
    slots = sum(worker.slots for worker in workers)
    return TakenSlots(slots, tuple(types.most_common()), longest, max(one.latest_at for one in theirs))


def say_types(taken: TakenSlots) -> str:
    """List the types that take the slots: `19 demo.sleep, 1 mail.send`."""
    named = [f"{count} {type}" for type, count in taken.by_type[:MOST_NAMED]]
    others = len(taken.by_type) - len(named)
    return ", ".join([*named, *([f"{others} other types"] if others else [])])


# The order in which a worker serves several queues

MOST_WEIGHT = 1000


class QueueShares:
    """The queues of one worker: all of them, or some, which it serves as one, strictly in order, or by weight. Refuses
    contradictions, such as a queue that is named twice."""

    def __init__(self, queues: Sequence[str] | Mapping[str, int] | None, *, strict: bool = False) -> None:
        self.queues = None if queues is None else _checked_names(queues)
        self._weights = queues if isinstance(queues, Mapping) else None
        self.in_turn = strict or self._weights is not None
        _refuse_contradictions(self.queues, self._weights, strict)

    def turn(self, chance: Callable[[], float]) -> tuple[str, ...] | None:
        """Return the queues in the order for the next claim. By weight, each queue comes first in proportion to its weight.
        Every worker also serves demora's own queues: with a weight of 1, or, strictly in order, after all others."""
        if self.queues is None:
            return None
        queues = (*self.queues, *(own for own in OWN_QUEUES if own not in self.queues))
        if self._weights is None:
            return queues
        luck = {queue: (1.0 - chance()) ** (1.0 / self._weights.get(queue, 1)) for queue in queues}
        return tuple(sorted(queues, key=lambda queue: luck[queue], reverse=True))

    def __str__(self) -> str:
        if self._weights is not None:
            return ",".join(f"{queue}={weight}" for queue, weight in self._weights.items())
        return "all" if self.queues is None else (" then " if self.in_turn else ",").join(self.queues)


def _checked_names(queues: Sequence[str] | Mapping[str, int]) -> tuple[str, ...]:
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise Invalid("queues", f"must be a list of names, or names with weights, not {type(queues).__name__}")
    return tuple(check_queue(queue, "queues") for queue in queues)


def _refuse_contradictions(queues: Sequence[str] | None, weights: Mapping[str, int] | None, strict: bool) -> None:
    if queues is not None and (not queues or len(set(queues)) < len(queues)):
        raise Invalid("queues", "name at least one queue, and each only once")
    if not isinstance(strict, bool):
        raise Invalid("strict", "must be true or false")
    if strict and (queues is None or weights is not None):
        raise Invalid("strict", "serves queues in the order in which they are named; name them, without weights")
    for queue, weight in (weights or {}).items():
        if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MOST_WEIGHT:
            raise Invalid("queues", f"the weight of {queue} must be a whole number from 1 to {MOST_WEIGHT}")


# Parked jobs: which of their types no live worker knows, and when such a job fails. Times are milliseconds, as engines
# store them.

_GRACE = span_ms(NO_HANDLER_GRACE)


class ParkedType(msgspec.Struct, frozen=True):
    """A type of which claims have parked jobs in a queue. `unknown_since` is None while a live worker of the queue knows the
    type, and while the queue has no live worker."""

    type: str
    queue: str
    unknown_since: int | None


class Judged(msgspec.Struct, frozen=True):
    """The parked types, compared with the live workers. `changed` have a new `unknown_since`, and `forgotten` are to be
    forgotten, because every worker knows them. `unknown` has the types that no worker knows, by type and queue, and since
    when."""

    changed: list[ParkedType]
    forgotten: list[ParkedType]
    unknown: dict[tuple[str, str], int]


def judge(parked: Iterable[ParkedType], workers: Sequence[WorkerRecord], now: int) -> Judged:
    """Compare the parked types with the types that live workers know."""
    live = [worker for worker in workers if worker.live]
    judged = Judged([], [], {})
    for one in parked:
        known = knows_type(live, one.queue, one.type)
        since = None if known is not False else one.unknown_since if one.unknown_since is not None else now
        if since != one.unknown_since:
            judged.changed.append(msgspec.structs.replace(one, unknown_since=since))
        if since is not None:
            judged.unknown[one.type, one.queue] = since
        if known and all(one.type in worker.types for worker in live if serves(worker, one.queue)):
            judged.forgotten.append(one)
    return judged


def fails_at(unknown_since: int, due_at: int) -> int:
    """Return when a parked job fails: when it has been due, and its type unknown, for the whole grace."""
    return max(unknown_since, due_at) + _GRACE


def failing_until(now: int) -> int:
    """Return the latest due time of the parked jobs that fail now, if their type has been unknown for long enough."""
    return now - _GRACE
