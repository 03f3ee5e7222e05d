"""Events: what listeners hear about jobs and queues, how two readings of the database become events, and which listener
hears which."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from .pace import Pace
from .states import Status


class EventKind(StrEnum):
    """What happened. `reset` says that the position a listener asked for is too old: events are missing."""

    ADDED = "job.added"
    STARTED = "job.started"
    PROGRESS = "job.progress"
    RETRYING = "job.retrying"
    COMPLETED = "job.completed"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"
    PAUSED = "queue.paused"
    RESUMED = "queue.resumed"
    PACE = "queue.pace"
    RESET = "reset"


class EventJob(msgspec.Struct, frozen=True):
    """A job as an event shows it: without its payload and its result. `moment` is the time of its latest step: when it was
    added, started, failed or ended."""

    id: str
    name: str
    type: str
    queue: str
    status: Status
    tags: tuple[str, ...]
    attempt: int
    token: int
    due_at: datetime
    moment: datetime | None = None
    worker_id: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    error: str | None = None


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a job or a queue.

    A listener that has handled this event resumes at its `position`. It then misses no end, and hears none twice except
    those that were read together with this event.
    """

    kind: EventKind
    position: str = ""
    at: datetime | None = None
    queue: str | None = None
    job: EventJob | None = None
    pace: Pace | None = None  # the new one; None if it was taken off
    by: str | None = None  # who paused the queue or changed its pace
    reason: str | None = None  # of the pause
    follows: bool = False  # whether the queue follows the pace of all queues since this change


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a listener hears. An event must match all that is set. Queue events have no type, tag or job."""

    queue: str | None = None
    type: str | None = None
    tag: str | None = None
    job: str | None = None

    def matches(self, event: Event) -> bool:
        if self.queue is not None and event.queue != self.queue:
            return event.kind is EventKind.RESET
        job = event.job
        if job is None:
            return event.kind is EventKind.RESET or (self.type is None and self.tag is None and self.job is None)
        return (
            (self.type is None or job.type == self.type)
            and (self.tag is None or self.tag in job.tags)
            and (self.job is None or job.id == self.job)
        )


_OF_STATUS = {
    Status.RETRYING: EventKind.RETRYING,
    Status.COMPLETED: EventKind.COMPLETED,
    Status.FAILED: EventKind.FAILED,
    Status.CANCELLED: EventKind.CANCELLED,
}


def added_event(job: EventJob) -> Event:
    """Return the event of a new job, which may have been claimed or ended since."""
    return _of_job(EventKind.ADDED, job, job.moment)


def settled_event(job: EventJob) -> Event:
    """Return the event of a job that has ended or waits for its next attempt."""
    return _of_job(_OF_STATUS[job.status], job, job.moment)


def running_events(before: Mapping[str, EventJob], now: Iterable[EventJob], read_at: datetime) -> Iterator[Event]:
    """Return the events between two readings of the running jobs: jobs that were claimed, and jobs that reported progress. A
    job that was claimed again between the readings has started again.
    """
    for job in now:
        earlier = before.get(job.id)
        if earlier is None or earlier.token != job.token:
            yield _of_job(EventKind.STARTED, job, job.moment)
            earlier = None
        told = (None, None) if earlier is None else (earlier.progress, earlier.progress_message)
        if (job.progress, job.progress_message) != told:
            yield _of_job(EventKind.PROGRESS, job, read_at)


def pause_events(before: Mapping[str, Event], now: Mapping[str, Event], read_at: datetime) -> Iterator[Event]:
    """Return the events between two readings of the paused queues. Each queue comes with the event of its pause."""
    for queue, paused in now.items():
        if before.get(queue) != paused:
            yield paused
    for queue in before.keys() - now.keys():
        yield Event(EventKind.RESUMED, at=read_at, queue=queue)


def placed(events: Sequence[Event], before: str, after: str) -> list[Event]:
    """Return the events of one reading with their positions. A listener that has handled only some of them must hear the
    others again, so all but the last one carry the position before the reading.
    """
    return [_at(event, after if n == len(events) else before) for n, event in enumerate(events, 1)]


def _at(event: Event, position: str) -> Event:
    return msgspec.structs.replace(event, position=position)


def _of_job(kind: EventKind, job: EventJob, at: datetime | None) -> Event:
    return Event(kind, at=at, queue=job.queue, job=job)
