"""The port: what every engine does for demora, and the values it speaks in.

An engine remembers jobs and hands them out; it never decides. Verbs take no time: the engine reads its database's clock
in the statement. A lost race is a value, not an exception. Every write takes a list, one call commits as a whole, and
calls made at the same time share a transaction. Cancelling the task that awaits a write does not withdraw the write.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import msgspec

from ..core.job import Job, NewJob, Priority, QueueOrder
from ..core.pace import Release
from ..core.retention import Retention, RetentionRequest
from ..core.states import Status
from ..core.verdict import Lapsed, RetryState, Verdict, decide


class Topic(Enum):
    """What a sleeper can be woken for."""

    READY = "ready"  # a job became ready, or is due before all others of its queue, or a queue was resumed
    ENDED = "ended"  # a job ended
    EXPIRY = "expiry"  # a job was added that expires before all others
    PACE = "pace"  # the pace of a queue was changed


class Added(msgspec.Struct, frozen=True):
    """What became of one request: a new job; the job that its key or id already made; a key that means another request; or
    the unique job that waits already, kept as it is or replaced. A replaced job `left` the queue it was in, perhaps for the
    same one."""

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


class Lease(msgspec.Struct, frozen=True):
    """A worker's right to a job, until it is settled or lapses. The token grows with each claim."""

    id: str
    token: int


class ClaimedJob(msgspec.Struct, frozen=True):
    """A job leased to a worker, with all that it needs to run it."""

    lease: Lease
    type: str
    name: str
    queue: str
    priority: Priority
    payload: bytes
    standing: RetryState
    timeout: timedelta | None
    scheduled_at: datetime
    tags: tuple[str, ...]


class LapsedJob(msgspec.Struct, frozen=True):
    """A job whose lease ran out, still under its old token; whoever sees it settles it."""

    lease: Lease
    type: str
    worker_id: str | None
    standing: RetryState


HELD_LOOK = timedelta(milliseconds=50)  # until the next look at ready jobs that another transaction holds


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim. `next_in` is how long from this answer until there is something to do, None if nothing is
    in sight; `released` is what was let go before, claimed now or not."""

    jobs: list[ClaimedJob]
    lapsed: list[LapsedJob]
    next_in: timedelta | None
    released: Sequence[Release] = ()


class HousekeepingResult(msgspec.Struct, frozen=True):
    """What a piece of housekeeping did. `next_in` is how long until there is something to do again, None if nothing is in
    sight."""

    expired: int
    removed: int
    next_in: timedelta | None


class Report(msgspec.Struct, frozen=True):
    """What a running job has to say: how long it has run, how far it is, and new lines for its log."""

    lease: Lease
    ran: timedelta
    progress: float | None = None
    message: str | None = None
    log: tuple[tuple[timedelta, str], ...] = ()  # (how long after its start, line)


class LeaseStatus(msgspec.Struct, frozen=True):
    """What a worker must know of the jobs it runs: those no longer its own, and those somebody wants cancelled."""

    lost: frozenset[Lease]
    wished: frozenset[Lease]


class Settlement(msgspec.Struct, frozen=True):
    """A verdict with the last report of its run. `lapsed` settles a lease that ran out, and only such a one."""

    report: Report
    verdict: Verdict
    lapsed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """Whether a request about one job was carried out, and its status now; None if there is no such job."""

    did: bool
    status: Status | None


class Change(msgspec.Struct, frozen=True):
    """What to change of a waiting job; None leaves as it is. At most one of `at` and `delay` is set."""

    priority: Priority | None = None
    at: datetime | None = None
    delay: timedelta | None = None
    tags: tuple[str, ...] | None = None


class Query(msgspec.Struct, frozen=True):
    """Which jobs to find, newest first; `after` is the id that the previous page ended with.

    `older_than` takes jobs that ended so long ago, or if they have not ended, were added so long ago. Without `payload` or
    `result` those are not read. A page ends early, after one job at least, where another job would bring its payloads,
    results, errors and tracebacks to more than `bytes`. With a limit of time, `within`, the search is stopped after so long.
    """

    statuses: frozenset[Status] = frozenset()
    queue: str | None = None
    type: str | None = None
    tag: str | None = None
    after: str | None = None
    limit: int = 50
    older_than: timedelta | None = None
    payload: bool = True
    result: bool = True
    bytes: int | None = None
    within: timedelta | None = None

    @property
    def reads_many(self) -> bool:
        """Whether jobs may have to be read that do not match."""
        filters = (self.queue, self.type, self.tag, self.older_than)
        return bool(self.statuses) or any(one is not None for one in filters)


class Page(msgspec.Struct, frozen=True):
    """Jobs found; `next` is the id to go on after, None at the end."""

    jobs: list[Job]
    next: str | None


class Pause(msgspec.Struct, frozen=True):
    """A queue that hands out nothing, why, since when, and by whom."""

    reason: str | None
    paused_at: datetime
    by: str | None = None


class Queue(msgspec.Struct, frozen=True):
    """A queue: its settings and how many jobs stand where."""

    name: str
    order: QueueOrder = QueueOrder()
    pause: Pause | None = None
    retention: Retention = Retention()
    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0
    webhook_url: str | None = None  # of jobs that name none


class QueueQuery(msgspec.Struct, frozen=True):
    """Which queues to show, by name: those after a name, at most so many, or the one of this `name`. With a limit of time,
    `within`, the counting is stopped after so long."""

    after: str | None = None
    limit: int | None = None
    name: str | None = None
    within: timedelta | None = None

    @property
    def reads_many(self) -> bool:
        return self.name is None

    @property
    def first(self) -> str:
        return self.name or self.after or ""

    @property
    def last(self) -> str:
        return self.name or "~"  # comes after all characters of names


class QueueChange(msgspec.Struct, frozen=True):
    """What to change of a queue; None leaves as it is."""

    step: timedelta | None = None
    strict: bool | None = None
    head_start: timedelta | None = None
    paused: bool | None = None
    reason: str | None = None  # of the pause; without one a paused queue keeps the one it has
    by: str | None = None  # who pauses it, or gives another reason
    retention: RetentionRequest | None = None
    webhook_url: str | None = None  # empty: none any more


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker as it registers itself; the engine stamps the times."""

    id: str
    host: str
    pid: int
    slots: int
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    started_at: datetime | None = None
    heartbeat_ago: timedelta = timedelta(0)


ALL_QUEUES = QueueQuery()


class Subscription(Protocol):
    """A sleeper's place. Subscribe, look, then wait: whatever happens after the look ends the wait."""

    def wake(self) -> None:
        """End the wait from within this process."""
        ...

    def clear(self) -> None:
        """Forget earlier wake-ups; call it before the look."""
        ...

    async def wait(self, timeout: float | None) -> bool:
        """Return when woken, when the clock was stepped, or after `timeout` seconds. It may return for no reason. Whether
        there may be something new: not if only time has passed."""
        ...


class Store(Protocol):
    """The verbs. Ids that are no ids are ids that no job has."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Refuses a schema newer than it knows."""
        ...

    async def close(self) -> None:
        """Finish the writes under way, disconnect, and wake all sleepers."""
        ...

    def sibling(self) -> "Store | None":
        """Another store on the same database, for use on another thread; None if the database lives on this one alone."""
        ...

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Record new jobs, all or none, and answer in order.

        Adding an id twice is adding it once. A key that is still kept gives the job it made, or a conflict if the request
        differs; with any conflict nothing is stored. A unique job is not stored while another of its type and key waits that
        was never claimed: that one is kept or replaced, and keeps its id. Sleepers are woken if a job is ready or the new
        head of its queue, and for the expiry of the one that expires first.
        """
        ...

    async def claim(
        self,
        worker_id: str,
        limit: int,
        *,
        lease: timedelta,
        queues: Sequence[str] | None = None,
        in_turn: bool = False,
    ) -> Claimed:
        """Lease up to `limit` ready jobs in order, and show those whose lease lapsed.

        Order is that of `QueueOrder`, across queues too; equal jobs go in order of adding. With `in_turn` a queue comes
        before all those named after it. No job is handed out before it is due, while its lease holds, while its queue is
        paused or its pace holds it, or for the first time after it expired: such a one gets the verdict `EXPIRED` instead.
        What the paces of these queues allow is let go first; or, if there are other jobs to hand out, by the next claim, and
        then `next_in` is nothing. Each claim grows the token and counts as an attempt until settled otherwise.
        """
        ...

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        """Extend the leases that still hold, and record the reports with them; the others are lost."""
        ...

    async def listen(self, leases: Sequence[Lease]) -> LeaseStatus:
        """Say which of these leases no longer hold and which of these jobs somebody wants cancelled. Writes nothing."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        """Record what became of claimed jobs: the status of each now, or None for those that were no longer ours.

        A verdict is applied only while its lease holds, so a worker that outslept its lease cannot overwrite the one that
        took over. If a cancel was asked for meanwhile, `Verdict.after_cancel_request` is applied instead.
        """
        ...

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        """Cancel what waits, at once; record the request for what runs (the answer's status is then PROCESSING)."""
        ...

    async def retry(self, ids: Sequence[str]) -> list[Answer]:
        """Start a new generation of failed or cancelled jobs: due now, never to expire, attempts counted anew, history
        kept."""
        ...

    async def change(self, id: str, change: Change) -> Answer:
        """Change a waiting job in place; a new time puts it into the scheduled lane."""
        ...

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        """Delete ended jobs with their history; their idempotency keys stay."""
        ...

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        """Delete up to `limit` jobs that ended so long ago with this status, and keys that expired; count the jobs."""
        ...

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        """Do a piece of the housekeeping, about `limit` jobs at most: `EXPIRED` to waiting jobs that expired, the oldest
        ended jobs gone that neither their queue's own retention nor this one keeps, keys that expired forgotten, and workers
        that were silent for a day. Any number may do it at once."""
        ...

    async def get(self, id: str) -> Job | None:
        """The job with its attempts and its log."""
        ...

    async def find(self, query: Query) -> Page:
        """Jobs that match, newest first, with their attempts. A search that has to read more than its page runs beside
        everything else, only few at once: with a limit of time `TooManySearches` says that none of them ended soon, and
        `SearchTooSlow` that this one was stopped."""
        ...

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        """The queues ever named, by name, with their counts. Counting is limited like a search."""
        ...

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        """Change a queue, naming it if need be. The next claim of any worker follows. Answers with its settings."""
        ...

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Register a worker, or say that it is still alive."""
        ...

    async def retire(self, worker_id: str) -> None:
        """Forget a worker that stopped."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """All registered workers, with the age of their last heartbeat."""
        ...

    def subscribe(self, topic: Topic) -> AbstractContextManager[Subscription]:
        """A place to be woken at, in this process or another."""
        ...


# What becomes of a job whose lease lapsed, whoever sees it first: a worker at its claim, or an operator.


RetryRules = Callable[[str, RetryState], RetryState]


def lapse(lapsed: LapsedJob, drawn: float, rules: RetryRules) -> Settlement:
    """The settlement under the old token, which is refused if the lease was settled meanwhile. `rules` adds to a standing
    how a type wants to be retried, `drawn` is for jitter."""
    verdict = decide(Lapsed(lapsed.worker_id), rules(lapsed.type, lapsed.standing), drawn)
    return Settlement(Report(lapsed.lease, timedelta(0)), verdict, lapsed=True)
