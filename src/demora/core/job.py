"""Jobs: as a caller asks for one, as a store keeps it, and how a queue orders them. All parts of demora use these values."""

import hashlib
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from ..errors import NotRead
from .payload import unpack
from .spans import span_ms, to_ms
from .states import Status

if TYPE_CHECKING:  # a type variable with a default: `Job` alone means `Job[Any]`
    from typing_extensions import TypeVar

    Result_co = TypeVar("Result_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)

_Time = TypeVar("_Time", int, datetime, str)  # milliseconds, or a time, or its text on the wire

DEFAULT_QUEUE = "default"
DEFAULT_RETRIES = 3
DEFAULT_RETRY_DELAY = timedelta(seconds=1)
DEFAULT_TIMEOUT = timedelta(hours=1)
DEFAULT_LEASE = timedelta(seconds=30)
KEY_KEPT = timedelta(hours=24)  # an idempotency key
_STRICT_STEP = 10**15  # milliseconds: longer than any two ready times can be apart


class Priority(IntEnum):
    """How urgent a job is. The number is its rank: the smaller one runs first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    def __str__(self) -> str:
        return self.name


class Lane(IntEnum):
    """How a job became ready."""

    REALTIME = 0
    SCHEDULED = 1
    RETRY = 2
    RELEASED = 3


PARKED = 4  # what an engine adds to the number of the lane of a parked job; see `Store.claim`


def lane_of(number: int) -> Lane:
    """Return the lane of a job from the number that an engine keeps, parked or not."""
    return Lane(number % PARKED)


def lane_for(due: _Time, now: _Time, *, of_schedule: bool = False) -> Lane:
    """Return the lane of a job that is added now. A job of a schedule enters the scheduled one even if it is due at once."""
    return Lane.SCHEDULED if due > now or of_schedule else Lane.REALTIME


def due_at(at: datetime | None, delay: timedelta | None, now: datetime) -> datetime:
    """Return when a job is due that a caller wants at a time, after a delay, or at once. A time in the past means now."""
    if at is not None:
        return max(at, now)
    return now if delay is None else now + delay


def due_ms(at: datetime | None, delay: timedelta | None, now: int) -> int:
    """Return `due_at` in milliseconds, as stores keep it: never before the time that the caller asked for."""
    if at is not None:
        return max(to_ms(at), now)
    return now if delay is None else max(now + span_ms(delay), now)


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A caller's name for one request. While the key is kept, the same key and request hash mean the same job."""

    key: str
    request_hash: bytes
    namespace: str = ""
    kept: timedelta = KEY_KEPT


class Unique(msgspec.Struct, frozen=True):
    """A request that at most one waiting, never claimed job has this type, namespace and key.

    If there is one already, it stays as it is and the new one is not stored. With `replace` it takes over the new request.
    """

    key: str
    replace: bool = False


class NewJob(msgspec.Struct, frozen=True, gc=False):  # no value of a job can refer to it, so no cycle is missed
    """A checked request for a job. At most one of `at` and `delay` is set; with neither the job is due at once.

    At most one of `expires_at` and `expires_in` is set. A job that has had no attempt by then never starts.
    """

    id: str
    type: str
    name: str
    queue: str
    priority: Priority
    payload: bytes
    at: datetime | None = None
    delay: timedelta | None = None
    max_retries: int = DEFAULT_RETRIES
    retry_delay: timedelta = DEFAULT_RETRY_DELAY
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    webhook_url: str | None = None
    key: IdempotencyKey | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | None = None
    unique: Unique | None = None
    webhook_on_cancel: bool = False
    cause: str | None = None  # of a delivery: the job that has ended
    namespace: str = ""  # of its unique key; its idempotency key has the same
    submitter: str | None = None  # the API key whose limit of waiting jobs it counts for
    traceparent: str | None = None  # the W3C trace context of the span that adds it


def in_namespace(job: NewJob, namespace: str, submitter: str | None = None) -> NewJob:
    """Return the job with its unique key and its idempotency key in a namespace, where they cannot meet those of another."""
    key = None if job.key is None else msgspec.structs.replace(job.key, namespace=namespace)
    return msgspec.structs.replace(job, key=key, namespace=namespace, submitter=submitter)


class Attempt(msgspec.Struct, frozen=True):
    """One run of a job that counts against its retries."""

    token: int
    started_at: datetime | None
    ended_at: datetime | None
    worker_id: str | None
    error: str | None = None
    traceback: str | None = None


class LogLine(msgspec.Struct, frozen=True):
    """A line that a handler wrote with `ctx.log`."""

    at: datetime
    line: str


class Job(msgspec.Struct, Generic[Result_co], frozen=True, gc=False):
    """A job as the store keeps it. Payload and result are JSON text, decoded on access. Either is empty if the job was
    found without it; access then raises `NotRead`. For type checkers, a `Job[int]` is one whose handler returns an int."""

    id: str
    name: str
    type: str
    queue: str
    payload_json: bytes
    priority: Priority
    status: Status
    lane: Lane
    created_at: datetime
    scheduled_at: datetime
    due_at: datetime
    max_retries: int
    retry_delay: timedelta
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()
    webhook_url: str | None = None
    token: int = 0
    attempt: int = 0
    retry_count: int = 0
    generation: int = 1
    started_at: datetime | None = None
    completed_at: datetime | None = None
    lease_until: datetime | None = None
    worker_id: str | None = None
    cancel_requested_at: datetime | None = None
    progress: float | None = None
    progress_message: str | None = None
    result_json: bytes | None = None
    error: str | None = None
    expires_at: datetime | None = None
    unique_key: str | None = None
    webhook_on_cancel: bool = False
    cause: str | None = None
    schedule_name: str | None = None  # the schedule that added the job
    slot_at: datetime | None = None  # the fire time it was added for; None if a caller triggered it
    attempts: tuple[Attempt, ...] = ()
    log: tuple[LogLine, ...] = ()

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.type} {self.status.name}>"

    @property
    def payload(self) -> Any:
        if not self.payload_json:
            raise NotRead(self.id, "payload")
        return unpack(self.payload_json)

    @property
    def result(self) -> Any:
        """The value that the handler returned; None until the job is completed."""
        if self.result_json == b"":
            raise NotRead(self.id, "result")
        return None if self.result_json is None else unpack(self.result_json)


def expires_before(job: Job, due: datetime) -> bool:
    """Whether a waiting job that has had no attempt would have expired at this time."""
    return job.expires_at is not None and job.expires_at <= due and job.attempt == 0 and job.status.waiting


def revision(job: Job) -> str:
    """Return a text that changes with the state of a job and with everything that a request can set. Progress, results and
    log lines do not change it."""
    digest = hashlib.blake2b(job.payload_json, digest_size=16)
    state = (job.id, job.status, job.token, job.generation, job.cancel_requested_at)
    times = (job.scheduled_at, job.due_at, job.expires_at, job.timeout)
    request = (job.name, job.queue, job.priority, job.lane, job.tags, job.max_retries, job.retry_delay)
    digest.update(msgspec.json.encode((state, times, request, job.webhook_url, job.webhook_on_cancel)))
    return digest.hexdigest()


class QueueOrder(msgspec.Struct, frozen=True):
    """The settings of a queue that decide the order of its jobs: by due time, plus a step for each rank of priority, plus
    the head start that real-time jobs have over the others."""

    step: timedelta = timedelta(seconds=1000)
    strict: bool = False
    head_start: timedelta = timedelta(seconds=30)

    def offset(self, lane: Lane, rank: Priority) -> int:
        """Return the milliseconds to add to the ready time of a job. The job with the smallest sum runs first."""
        step = _STRICT_STEP if self.strict else span_ms(self.step)
        return rank * step + (0 if lane == Lane.REALTIME else span_ms(self.head_start))
