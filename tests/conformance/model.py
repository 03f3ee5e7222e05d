"""A small model of the store, written from the rules of the design: a dict of jobs and two clocks."""

from dataclasses import dataclass, field
from typing import Any

from demora.core.states import Status

WAITING = {Status.QUEUED, Status.RETRYING}
STEP, HEAD_START = 1_000_000, 30_000


@dataclass
class ModelJob:
    """What the rules know of a job; times in milliseconds."""

    number: int  # order of adding
    queue: str
    rank: int
    due: int
    realtime: bool
    max_retries: int
    retry_delay: int
    status: Status = Status.QUEUED
    token: int = 0
    attempt: int = 0
    retries: int = 0
    lease_until: int | None = None
    cancel_requested: bool = False
    expires: int | None = None
    unique: str | None = None
    generation: int = 1

    @property
    def place(self) -> tuple[int, int]:
        return self.due + self.rank * STEP + (0 if self.realtime else HEAD_START), self.number


@dataclass
class Model:
    """Jobs by id, keys by name, paused queues; what each verb does to them, and what it answers."""

    wall: int
    boot: int
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    keys: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # name → id, request, expiry
    paused: set[str] = field(default_factory=set)
    added: int = 0

    def turn(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms

    def add_unique(self, id: str, unique: str, *, replace: bool, delay: int, **job: Any) -> tuple[str, bool, bool]:
        """Answers with the id that the asked means, whether one that waits was kept, whether replaced."""
        for other, waits in self.jobs.items():
            if waits.unique == unique and waits.status in WAITING and waits.token == 0 and waits.generation == 1:
                if replace:
                    new = ModelJob(waits.number, due=self.wall + delay, realtime=delay == 0, unique=unique, **job)
                    self.jobs[other] = new
                return other, not replace, replace
        self.added += 1
        self.jobs[id] = ModelJob(self.added, due=self.wall + delay, realtime=delay == 0, unique=unique, **job)
        return id, False, False

    def add(self, id: str, *, delay: int, key: tuple[str, int, int] | None, **job: Any) -> tuple[str, bool, bool]:
        """Answers with the id that the asked means, whether it is a replay, whether a conflict."""
        name, request, kept = key or ("", 0, 0)
        if name in self.keys and self.keys[name][2] > self.wall:
            known, before, _ = self.keys[name]
            return known, before == request, before != request
        self.added += 1
        self.jobs[id] = ModelJob(self.added, due=self.wall + delay, realtime=delay == 0, **job)
        if key is not None:
            self.keys[name] = id, request, self.wall + kept
        return id, False, False

    def waiting(self) -> bool:
        return any(job.status in WAITING for job in self.jobs.values())

    def claim(self, limit: int, lease: int, queues: list[str] | None) -> list[str]:
        first = sorted(self._ready_ids(queues), key=lambda id: self.jobs[id].place)[:limit]
        chosen = [id for id in first if not self.expired(self.jobs[id])]
        for job in (self.jobs[id] for id in chosen):
            job.status, job.lease_until = Status.PROCESSING, self.boot + lease
            job.token += 1
            job.attempt += 1
        for id in set(first) - set(chosen):
            self._move(self.jobs[id], Status.CANCELLED)
        return chosen

    def expired(self, job: ModelJob) -> bool:
        never_tried = job.status in WAITING and job.attempt == 0
        return never_tried and job.expires is not None and job.expires <= self.wall

    def housekeep(self) -> int:
        self.keys = {name: key for name, key in self.keys.items() if key[2] > self.wall}
        expired = [job for job in self.jobs.values() if self.expired(job)]
        for job in expired:
            self._move(job, Status.CANCELLED)
        return len(expired)

    def ready(self, queues: list[str] | None) -> int:
        return len(self._ready_ids(queues))

    def _ready_ids(self, queues: list[str] | None) -> list[str]:
        return [id for id, job in self.jobs.items() if self._ready(job) and (queues is None or job.queue in queues)]

    def _ready(self, job: ModelJob) -> bool:
        return job.status in WAITING and job.due <= self.wall and job.queue not in self.paused

    def holds(self, id: str, token: int) -> bool:
        job = self.jobs.get(id)
        return job is not None and job.token == token and job.lease_until is not None and job.lease_until > self.boot

    def lapsed(self) -> set[str]:
        return {id for id, job in self.jobs.items() if job.lease_until is not None and job.lease_until <= self.boot}

    def succeed(self, id: str) -> Status:
        return self._move(self.jobs[id], Status.COMPLETED)

    def give_up(self, id: str) -> Status:
        return self._move(self.jobs[id], Status.CANCELLED)

    def fail(self, id: str, *, permanent: bool = False) -> Status:
        job = self.jobs[id]
        if job.cancel_requested:
            return self._move(job, Status.CANCELLED)
        if permanent or job.attempt > job.max_retries:
            return self._move(job, Status.FAILED)
        job.retries += 1
        job.due, job.realtime = self.wall + job.retry_delay * 2 ** (job.attempt - 1), False
        return self._move(job, Status.RETRYING)

    def snooze(self, id: str, delay: int) -> Status:
        job = self.jobs[id]
        if not job.cancel_requested:
            job.due, job.realtime = self.wall + delay, False
        return self.hand_back(id)

    def hand_back(self, id: str) -> Status:
        """The run did not count, so the job is what it was before."""
        job = self.jobs[id]
        job.attempt -= 1
        if job.cancel_requested:
            return self._move(job, Status.CANCELLED)
        return self._move(job, Status.RETRYING if job.attempt else Status.QUEUED)

    def cancel(self, id: str) -> bool:
        job = self.jobs[id]
        if job.status in WAITING:
            self._move(job, Status.CANCELLED)
        elif job.status is Status.PROCESSING:
            job.cancel_requested = True
        else:
            return False
        return True

    def retry(self, id: str) -> bool:
        job = self.jobs[id]
        if job.status not in (Status.FAILED, Status.CANCELLED):
            return False
        job.attempt = job.retries = 0
        job.due, job.realtime, job.cancel_requested, job.expires = self.wall, False, False, None
        job.generation += 1
        self._move(job, Status.QUEUED)
        return True

    def change(self, id: str, rank: int | None, delay: int | None) -> bool:
        job = self.jobs[id]
        if job.status not in WAITING:
            return False
        job.rank = job.rank if rank is None else rank
        if delay is not None:
            job.due, job.realtime = self.wall + delay, False
        return True

    def remove(self, id: str) -> bool:
        ended = self.jobs[id].status not in WAITING and self.jobs[id].status is not Status.PROCESSING
        if ended:
            del self.jobs[id]
        return ended

    def next_in(self) -> int | None:
        """When there is something to do again, once all that is ready was taken."""
        dues = [job.due - self.wall for job in self.jobs.values() if job.status in WAITING and job.queue not in self.paused]
        lapses = [max(job.lease_until - self.boot, 0) for job in self.jobs.values() if job.lease_until is not None]
        return min((wait for wait in dues + lapses), default=None)

    def _move(self, job: ModelJob, status: Status) -> Status:
        job.status, job.lease_until = status, None
        return status
