"""The values of jobs, queues and workers that the verbs of `Store` take and return."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import msgspec

from ..core.filters import NO_FILTER, JobFilter, Sort
from ..core.job import Job, Priority, QueueOrder
from ..core.pace import Release
from ..core.retention import Retention, RetentionRequest
from ..core.states import Status
from ..core.verdict import HandedBack, Lapsed, Outcome, RetryState, Verdict, decide


class Topic(Enum):
    """What a notification is about. A waiter subscribes to one topic."""

    READY = "ready"  # a job became ready or the first to be due in its queue, or a queue was resumed
    ENDED = "ended"  # a job ended
    EXPIRY = "expiry"  # a job was added that expires before all other waiting jobs
    PACE = "pace"  # the pace of a queue was changed
    SCHEDULES = "schedules"  # the next fire time of a schedule may be earlier, or one waits for the end of a job


class Added(msgspec.Struct, frozen=True, gc=False):
    """The result of adding one job. Without a flag the job is new; otherwise one of these:

    - `replayed`: the id or the idempotency key belongs to an earlier job, which this result describes.
    - `conflict`: the idempotency key belongs to a different request, and nothing was stored.
    - `kept`: a unique job of the same type and key waits already, and stays as it is.
    - `replaced`: such a job now has the content of the new one under its old id. `left` is the queue it was in before, which
      may be the same one.
    """

    id: str
    created_at: datetime
    scheduled_at: datetime
    replayed: bool = False
    conflict: bool = False
    kept: bool = False
    left: str | None = None

    @property
    def replaced(self) -> bool:
        return self.left is not None


class Lease(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A worker's right to a job, until the job is settled or the lease lapses.

    The token grows with each claim of the job, so an old lease never matches a later one.
    """

    id: str
    token: int


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job leased to a worker, with everything that the worker needs to run it."""

    lease: Lease
    type: str
    name: str
    queue: str
    priority: Priority
    payload: bytes
    retry_state: RetryState
    timeout: timedelta | None
    scheduled_at: datetime
    tags: tuple[str, ...]
    schedule: str | None = None  # the schedule that added the job
    slot_at: datetime | None = None
    traceparent: str | None = None  # of the span that added the job


class LapsedJob(msgspec.Struct, frozen=True):
    """A job whose lease has lapsed and is not settled yet. The process that receives it settles it; see `lapse`."""

    lease: Lease
    type: str
    worker_id: str | None
    retry_state: RetryState


class LeasedJob(msgspec.Struct, frozen=True):
    """A job that is leased to a worker. `leased_for` is the time since the claim, by the database's clock."""

    lease: Lease
    type: str
    retry_state: RetryState
    timeout: timedelta | None
    leased_for: timedelta


LOCKED_RETRY = timedelta(milliseconds=50)  # until the next claim of ready jobs that another transaction has locked


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a worker asks of a claim: up to `limit` jobs of these queues and types (None: of all), leased for `lease`.

    With `in_turn` every queue goes before those named after it. Under its `claim_id`, if it has one, the verb `claimed`
    finds the jobs of a claim whose answer was lost.
    """

    worker_id: str
    limit: int
    lease: timedelta
    queues: Sequence[str] | None = None
    in_turn: bool = False
    types: frozenset[str] | None = None
    claim_id: str | None = None


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim.

    `next_in` is the time from this result until the next claim can find something, None if nothing is foreseeable.
    `released` are the jobs that paces released in this call, whether or not it also claimed them. `parked` are the types of
    the jobs that this call parked.
    """

    jobs: list[ClaimedJob]
    lapsed: list[LapsedJob]
    next_in: timedelta | None
    released: Sequence[Release] = ()
    parked: frozenset[str] = frozenset()


class HousekeepingResult(msgspec.Struct, frozen=True):
    """The result of one piece of housekeeping.

    `next_in` is the time until there is more to do, None if nothing is foreseeable. `expired_ids` are the jobs that expired.
    `unknown_types` are the types of waiting jobs that no live worker of their queue knows, and `failed` is the number of
    such jobs that failed for that reason.
    """

    expired_ids: tuple[str, ...]
    removed: int
    next_in: timedelta | None
    failed: int = 0
    unknown_types: frozenset[str] = frozenset()

    @property
    def expired(self) -> int:
        return len(self.expired_ids)


MOST_LINES = 200  # lines of the log of one run
MOST_LINE = 1000  # characters of a line, and of the message of its progress


class Report(msgspec.Struct, frozen=True, gc=False):
    """A report of a running job: how long it has run, its progress, and new lines for its log."""

    lease: Lease
    ran: timedelta
    progress: float | None = None
    message: str | None = None
    log: tuple[tuple[timedelta, str], ...] = ()  # (time since the start of the run, line)


class LeaseStatus(msgspec.Struct, frozen=True):
    """The leases that a worker has `lost`, and those whose jobs a caller wants cancelled (`cancel_requested`)."""

    lost: frozenset[Lease]
    cancel_requested: frozenset[Lease]


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How a run ended, the verdict on it, and its last report. An engine applies the verdict; a service over HTTP gets the
    outcome, and decides itself. With `lapsed` the settlement applies only to a lease that has lapsed."""

    report: Report
    outcome: Outcome
    verdict: Verdict
    lapsed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """Whether a request about one job was carried out, and the status of the job now; None if no job has the id."""

    did: bool
    status: Status | None


class Change(msgspec.Struct, frozen=True):
    """A change of a waiting job. None changes nothing. At most one of `at` and `delay` is set.

    With `revisions`, the job is changed only if its `revision` is one of them.
    """

    priority: Priority | None = None
    at: datetime | None = None
    delay: timedelta | None = None
    tags: tuple[str, ...] | None = None
    revisions: frozenset[str] | None = None


MOST_READ = 100_000  # jobs that one search reads, and that one count counts
MOST_TIME = timedelta(milliseconds=200)  # for reading jobs that do not match


class Query(msgspec.Struct, frozen=True):
    """A search for jobs, in the order of `sort`. A job must match the filter and everything else that is set.

    The order by `due` is for waiting jobs only, and the one by `ended` for ended jobs. `after` is the `next` of the previous
    page. `older_than` matches jobs that ended at least so long ago and, if they have not ended, were added at least so long
    ago. `payload` and `result` say whether to read these fields. A page ends before the `limit`, but after at least one job,
    where its payloads, results, errors and tracebacks would exceed `bytes`. `within` is a time limit for the search.
    """

    filter: JobFilter = NO_FILTER
    sort: Sort = Sort.CREATED
    after: str | None = None
    limit: int = 50
    older_than: timedelta | None = None
    payload: bool = True
    result: bool = True
    bytes: int | None = None
    within: timedelta | None = None

    @property
    def reads_many(self) -> bool:
        """Whether the search may have to read jobs that do not match."""
        of_schedule = JobFilter(schedule=self.filter.schedule)  # an index has exactly these
        return self.filter != of_schedule or self.older_than is not None


class Page(msgspec.Struct, frozen=True):
    """A page of jobs. `next` is the `after` of the following page, None on the last page.

    If it is not `complete`, the search stopped before the page was full, because it had read `MOST_READ` jobs or had taken
    `MOST_TIME`. The following page continues there. Such a page may have no jobs at all.
    """

    jobs: list[Job]
    next: str | None
    complete: bool = True


class Count(msgspec.Struct, frozen=True):
    """How many jobs match. If it is not `complete`, there may be more: counting stopped where a search stops too."""

    jobs: int
    complete: bool = True


class Pause(msgspec.Struct, frozen=True):
    """The pause of a queue: its reason, its start, and who made it."""

    reason: str | None
    paused_at: datetime
    by: str | None = None


class Queue(msgspec.Struct, frozen=True):
    """A queue: its settings, and the number of its jobs in each state."""

    name: str
    order: QueueOrder = QueueOrder()
    pause: Pause | None = None
    retention: Retention = Retention()
    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0
    webhook_url: str | None = None  # for jobs without a webhook URL of their own


class QueueQuery(msgspec.Struct, frozen=True):
    """A list of queues, ordered by name: at most `limit` queues after the name `after`, or the one queue `name`.

    `within` is a time limit for counting their jobs.
    """

    after: str | None = None
    limit: int | None = None
    name: str | None = None
    within: timedelta | None = None

    @property
    def reads_many(self) -> bool:
        """Whether more than one queue may have to be counted."""
        return self.name is None

    @property
    def reads_all(self) -> bool:
        """Whether every queue is listed."""
        return self.name is None and self.after is None and self.limit is None

    @property
    def first(self) -> str:
        """A lower bound of the names to list."""
        return self.name or self.after or ""

    @property
    def last(self) -> str:
        """An upper bound of the names to list."""
        return self.name or "~"  # sorts after all characters that a name may have


class QueueChange(msgspec.Struct, frozen=True):
    """A change of a queue. None changes nothing."""

    step: timedelta | None = None
    strict: bool | None = None
    head_start: timedelta | None = None
    paused: bool | None = None
    reason: str | None = None  # of the pause; None keeps the reason of a queue that is paused already
    by: str | None = None  # who pauses the queue or changes the reason
    retention: RetentionRequest | None = None
    webhook_url: str | None = None  # empty text removes it


ALL_QUEUES = QueueQuery()


class Subscription(Protocol):
    """The subscription of one waiter to a topic.

    The order is: subscribe, `clear`, read the store, `wait`. Then a notification after the read always ends the wait, also
    one that another process sent before the wait began.
    """

    def wake(self) -> None:
        """End the wait, from within this process."""
        ...

    def clear(self) -> None:
        """Forget earlier notifications. Call it before the read."""
        ...

    async def wait(self, timeout: float | None) -> bool:
        """Wait for a notification, a step of the clock, or `timeout` seconds. Spurious wake-ups are allowed.

        Returns False if only the timeout has passed, True if there may be something new.
        """
        ...


def hand_back(job: ClaimedJob) -> Settlement:
    """Return the settlement of a job that was claimed and not started. The claim is not counted as an attempt."""
    outcome = HandedBack()
    return Settlement(Report(job.lease, timedelta(0)), outcome, decide(outcome, job.retry_state, 0.0))


RetryRules = Callable[[str, RetryState], RetryState]  # from the type and the state of a job


def lapse(lapsed: LapsedJob, drawn: float, rules: RetryRules) -> Settlement:
    """Return the settlement of a lapsed lease: a failed attempt under the old token.

    Workers settle lapses at their claims, and operators with `recover`. `settle` refuses it if another process was faster.
    `rules` adds the retry options of the job's type to its retry state. `drawn` is a random number from [0, 1) for jitter.
    """
    outcome = Lapsed(lapsed.worker_id)
    verdict = decide(outcome, rules(lapsed.type, lapsed.retry_state), drawn)
    return Settlement(Report(lapsed.lease, timedelta(0)), outcome, verdict, lapsed=True)
