"""Workers: which queues they serve, which types they know, and whether jobs take all of their slots.

A job counts for the worker that holds its lease. A worker may hold a few more jobs than it has slots, because it prefetches.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from .own import OWN_QUEUES

LIVE_WITHIN = timedelta(seconds=30)  # a worker or another process is live for so long after its last heartbeat


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
