"""A small model of the store, written from the rules of the design: a dict of jobs and two clocks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from demora.core.states import Status

WAITING = {Status.QUEUED, Status.RETRYING}
STEP, HEAD_START = 1_000_000, 30_000
PROMPT, MOST_RECORDED = 10_000, 100


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
    type: str = "demo.echo"
    cancelled_at: int | None = None  # while it waited, by a caller
    schedule: str | None = None
    fire_time: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.due + self.rank * STEP + (0 if self.realtime else HEAD_START), self.number


@dataclass
class ModelSchedule:
    """What the rules know of a schedule that fires at an interval; times in milliseconds."""

    every: int
    overlap: str
    missed: str
    late_limit: int
    recorded: int
    decided: int
    enabled: bool = True
    kept: int | None = None
    records: dict[int, str] = field(default_factory=dict)  # fire time → what became of it
    runs: int = 0

    @property
    def next(self) -> int | None:
        return self.recorded + self._first() * self.every if self.enabled else None

    def due(self, wall: int) -> list[int]:
        """The fire times since the last decision, oldest first."""
        first = self.recorded + self._first() * self.every
        return list(range(first, wall + 1, self.every)) if self.enabled else []

    def _first(self) -> int:
        return max((self.decided - self.recorded) // self.every + 1, 0)


@dataclass
class Model:
    """Jobs by id, keys by name, paused queues; what each verb does to them, and what it answers."""

    wall: int
    boot: int
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    keys: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # name → id, request, expiry
    paused: set[str] = field(default_factory=set)
    schedules: dict[str, ModelSchedule] = field(default_factory=dict)
    added: int = 0
    claims: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # claim id → id and token of each job

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

    def claim(self, limit: int, lease: int, queues: list[str] | None, types: frozenset[str] | None) -> list[str]:
        first = sorted(self.ready_ids(queues, types), key=lambda id: self.jobs[id].place)[:limit]
        chosen = [id for id in first if not self.expired(self.jobs[id])]
        self.take(chosen, lease)
        self.expire(set(first) - set(chosen))
        return chosen

    def take(self, ids: Iterable[str], lease: int) -> None:
        for job in (self.jobs[id] for id in ids):
            job.status, job.lease_until = Status.PROCESSING, self.boot + lease
            job.token += 1
            job.attempt += 1

    def expire(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._move(self.jobs[id], Status.CANCELLED)

    def note_claim(self, claim_id: str | None, ids: Iterable[str]) -> None:
        if claim_id is not None:
            self.claims[claim_id] = [(id, self.jobs[id].token) for id in ids]

    def claimed(self, claim_id: str) -> list[str]:
        """The jobs of a claim that its worker still holds, in the order of adding."""
        held = [id for id, token in self.claims[claim_id] if self.holds(id, token)]
        return sorted(held, key=lambda id: self.jobs[id].number)

    def expired(self, job: ModelJob) -> bool:
        never_tried = job.status in WAITING and job.attempt == 0
        return never_tried and job.expires is not None and job.expires <= self.wall

    def housekeep(self) -> int:
        self.keys = {name: key for name, key in self.keys.items() if key[2] > self.wall}
        expired = [job for job in self.jobs.values() if self.expired(job)]
        for job in expired:
            self._move(job, Status.CANCELLED)
        return len(expired)

    def ready_ids(self, queues: list[str] | None, types: frozenset[str] | None) -> list[str]:
        ready = [id for id, job in self.jobs.items() if self._ready(job) and (queues is None or job.queue in queues)]
        return [id for id in ready if types is None or self.jobs[id].type in types]

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
            job.cancelled_at = self.wall
        elif job.status is Status.PROCESSING:
            job.cancel_requested = True
        else:
            return False
        return True

    def restore(self, id: str, within: int) -> bool:
        job = self.jobs[id]
        if job.cancelled_at is None or job.cancelled_at <= self.wall - within:
            return False
        job.generation += 1
        self._move(job, Status.RETRYING if job.retries and job.attempt else Status.QUEUED)
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

    # Schedules

    def add_schedule(self, name: str, **fields: Any) -> bool:
        if name in self.schedules:
            return False
        self.schedules[name] = ModelSchedule(**fields, recorded=self.wall, decided=self.wall)
        return True

    def change_schedule(self, name: str, **fields: Any) -> bool:
        """A change begins anew from now. A fire time that waits is skipped."""
        schedule = self.schedules.get(name)
        if schedule is None:
            return False
        if schedule.kept is not None:
            schedule.records.setdefault(schedule.kept, "skipped")
        schedule.kept, schedule.decided = None, self.wall
        for field_name, value in fields.items():
            setattr(schedule, field_name, value)
        return True

    def trigger(self, name: str, id: str, **job: Any) -> bool:
        if name in self.schedules:
            self._add_of_schedule(id, name, None, job)
        return name in self.schedules

    def due_schedules(self) -> set[str]:
        return {name for name in self.schedules if self._is_due(name)}

    def fire(self, name: str, ids: dict[int, str], missed_limit: int, **job: Any) -> int:
        """Decide about all fire times up to now, and answer how many jobs were added; `ids` are those of their jobs."""
        schedule, due = self.schedules[name], self.schedules[name].due(self.wall)
        prompt = [at for at in due if self.wall - at <= PROMPT]
        most = {"skip": 0, "last": 1, "all": missed_limit}[schedule.missed]
        older = [at for at in due if at not in prompt]
        late = [at for at in older if self.wall - at <= schedule.late_limit][-most:] if most else []
        outcomes = dict.fromkeys([at for at in older if at not in late][-MOST_RECORDED:], "missed")
        wanted = ([] if schedule.kept is None else [schedule.kept]) + late + prompt
        schedule.kept = None
        if wanted:
            outcomes |= self._overlapped(name, wanted)
        if due:
            schedule.decided = self.wall
        new = {at: outcome for at, outcome in sorted(outcomes.items()) if at not in schedule.records}
        schedule.records |= new
        fired = [at for at, outcome in new.items() if outcome == "fired"]
        for at in fired:
            self._add_of_schedule(ids[at], name, at, job)
        schedule.runs += len(fired)
        return len(fired)

    def _is_due(self, name: str) -> bool:
        schedule = self.schedules[name]
        freed = schedule.kept is not None and schedule.kept <= self.wall and not self._unended(name)
        return freed or bool(schedule.due(self.wall))

    def _overlapped(self, name: str, wanted: list[int]) -> dict[int, str]:
        """What becomes of fire times, oldest first; one may be kept until the earlier jobs have ended."""
        schedule, unended = self.schedules[name], self._unended(name)
        waiting = [job for job in unended if job.status in WAITING and job.token == 0]
        if schedule.overlap == "allow":
            return dict.fromkeys(wanted, "fired")
        if schedule.overlap == "replace":
            for job in waiting:
                self._move(job, Status.CANCELLED)
                if job.fire_time in schedule.records:
                    schedule.records[job.fire_time] = "replaced"
            outcomes = dict.fromkeys(wanted[:-1], "replaced")
            if len(waiting) == len(unended):
                return outcomes | {wanted[-1]: "fired"}
            schedule.kept = wanted[-1]
            return outcomes
        outcomes = {} if unended else {wanted.pop(0): "fired"}
        if schedule.overlap == "queue" and wanted:
            schedule.kept = wanted.pop(0)
        return outcomes | dict.fromkeys(wanted, "skipped")

    def _unended(self, name: str) -> list[ModelJob]:
        unended = WAITING | {Status.PROCESSING}
        return [job for job in self.jobs.values() if job.schedule == name and job.status in unended]

    def _add_of_schedule(self, id: str, name: str, fire_time: int | None, job: dict[str, Any]) -> None:
        self.added += 1
        self.jobs[id] = ModelJob(self.added, due=self.wall, realtime=False, schedule=name, fire_time=fire_time, **job)

    def _move(self, job: ModelJob, status: Status) -> Status:
        job.status, job.lease_until, job.cancelled_at = status, None, None
        return status
