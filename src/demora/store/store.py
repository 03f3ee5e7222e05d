"""The port: the verbs that a database must offer to demora.

A store has the verbs on jobs, queues and workers itself. The verbs on other subjects are in its parts, one file each:
`store.paces`, `store.schedules`, `store.api_keys`, `store.webhooks`, `store.events`, `store.statistics`,
`store.diagnostics` and `store.audit`. They work on the same database as the store; what must be atomic is one verb.

Some engines offer more. `Transactional` (PostgreSQL) is in `transaction.py`, `Probed` (SQLite) in `diagnostics.py`, and
`LineFeed` (SQLite and PostgreSQL, for a Redis line) in `line_feed.py`.

An engine stores jobs and hands them out. It decides nothing: the core computes each verdict, and the engine applies it.
These rules hold for every verb:

- Time: a verb takes no current time. The engine reads the clock of its database during the call.
- Atomicity: each job is written as a whole or not at all, and `add` stores all its jobs or none. Other verbs on several jobs
  may commit in parts; repeating such a call completes it. Concurrent calls may share a transaction, but one call that is
  refused does not affect the others.
- Races: a lost race is a value in the result, not an exception.
- Cancellation: cancelling the task that awaits a write does not withdraw the write. A cancelled claim may keep leases, which
  then lapse.
- Durability: when a write returns, it is committed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from ..core.job import Job, NewJob
from ..core.retention import Retention
from ..core.states import Status
from ..core.workers import WorkerRecord
from .api_keys import ApiKeyStore
from .audit import AuditStore
from .diagnostics import DiagnosticsStore
from .events import EventStore
from .jobs import (
    ALL_QUEUES,
    Added,
    Answer,
    Change,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Count,
    HousekeepingResult,
    Lease,
    LeasedJob,
    LeaseStatus,
    Page,
    Query,
    Queue,
    QueueChange,
    QueueQuery,
    Report,
    Settlement,
    Subscription,
    Topic,
)
from .paces import PaceStore
from .schedules import ScheduleStore
from .statistics import StatisticsStore
from .webhooks import WebhookStore


class Store(Protocol):
    """The verbs on jobs, queues and workers, and the parts. A text that is not an id is treated as an id that no job has.

    Every verb of a store that is not open raises `StoreClosed`, those of its parts included.
    """

    @property
    def paces(self) -> PaceStore:
        """The paces of queues."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """The schedules, and the record of each fire time."""
        ...

    @property
    def api_keys(self) -> ApiKeyStore:
        """The API keys."""
        ...

    @property
    def webhooks(self) -> WebhookStore:
        """The deliveries of webhooks, their signing secrets, and disabled URLs."""
        ...

    @property
    def events(self) -> EventStore:
        """The rows from which the events for listeners are made."""
        ...

    @property
    def diagnostics(self) -> DiagnosticsStore:
        """The state of the jobs and of the database, for operators."""
        ...

    @property
    def statistics(self) -> StatisticsStore:
        """Counts and durations of the runs of the last week."""
        ...

    @property
    def audit(self) -> AuditStore:
        """The rows and events that a checker of demora's guarantees reads."""
        ...

    async def open(self) -> None:
        """Connect, and migrate the schema. `SchemaTooNew` if a newer demora has migrated it so that this version
        cannot use it. Opening twice is allowed.

        An engine that times leases by the machine's boot clock lapses all leases of an earlier boot.
        """
        ...

    async def close(self) -> None:
        """Finish the writes in progress, disconnect, and wake all waiters. Closing twice is allowed."""
        ...

    def sibling(self) -> "Store | None":
        """Return another store on the same database, for another thread; None if the database is in memory."""
        ...

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Store new jobs, all or none, and return the results in the same order.

        - Ids: a job whose id exists is a replay, and changes nothing.
        - Idempotency keys: a key that is still kept returns the job that it made (`replayed`), or a `conflict` if the
          request differs. With any conflict nothing of the call is stored. Of concurrent calls with one key, one stores the
          job.
        - Unique jobs: while a job of the same type and unique key waits that was never claimed, no second one is stored. The
          waiting job is `kept` or `replaced`, and keeps its id.
        - Notification: wakes waiters on `READY` if a job is ready or the first to be due in its queue, and on `EXPIRY` if
          one expires before all other waiting jobs.
        - Parking: in a queue where claims have parked jobs of a type (see `claim`), an engine may park new jobs of this type
          at once. It does not after `LineFeed.begin`, since the line has to hand out new jobs, and has no parked ones.
        """
        ...

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease ready jobs to a worker, and also return lapsed leases. A claim of 0 jobs still returns these.

        - Order: that of `QueueOrder`, also across queues; with `in_turn`, each queue goes before those named after it. Equal
          jobs go in the order of adding.
        - Exclusion: of concurrent claims, in any process, one gets a job. A job is not handed out before it is due, while
          its lease holds, while its queue is paused, or while a pace holds it. A lapsed job is not handed out before its
          lapse is settled.
        - Types: a job of another type is not leased, and costs this claim time at most once: if it stands in the way, the
          claim parks it. A parked job keeps its due time, its priority and its place in the order, and only claims that name
          its type (or None) read it. It stays parked until one of them leases it, or `change` gives it a new time. A claim
          parks a limited number of jobs; if there are more, `next_in` is zero.
        - Expiry: a job that has expired and has had no attempt gets the verdict `EXPIRED` instead of a lease.
        - Pace: the claim releases the jobs that the paces of these queues allow. An engine may leave that to a claim that
          finds no other job ready, and to the scheduler, and then returns a `next_in` of zero.
        - Attempts: each claim increases the token of the job, and counts as an attempt unless a later verdict says that it
          does not.
        - Progress: a leased job has no progress and no message, whatever its last run reported. Only a job of a type in
          `core.action.RESUMED_TYPES` keeps the message, from which its handler resumes the work.
        - Lost answers: `claimed` returns the jobs again that were claimed with a `claim_id`.
        """
        ...

    async def claimed(self, worker_id: str, claim_id: str) -> list[ClaimedJob]:
        """Return the jobs that claims with this id have leased to this worker, in the order of adding. Writes nothing.

        Jobs whose leases have lapsed, or that were settled, are not among them.
        """
        ...

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        """Extend the leases that still hold, and record their reports. The result names the leases that are lost.

        A lapsed lease is lost and not extended, even if no other worker has claimed its job. A stale report changes nothing
        of the later run.
        """
        ...

    async def lease_status(self, leases: Sequence[Lease]) -> LeaseStatus:
        """Return which of these leases are lost, and for which of these jobs a cancel was requested. Writes nothing."""
        ...

    async def leased(self, worker_id: str, leases: Sequence[Lease] | None = None) -> list[LeasedJob]:
        """Return the jobs that are leased to this worker: all, or those of these leases, in the order of the claims.

        A lease that has lapsed, or that another worker has, is not among them. Writes nothing.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        """Apply verdicts to claimed jobs, and return the new status of each, None where the lease no longer held.

        A verdict is applied only while its lease holds. A worker that overslept its lease therefore cannot overwrite the run
        that took over, and each run is settled once. A settlement with `lapsed` is applied only if the lease has lapsed and
        was not settled since. If a cancel was requested during the run, `Verdict.after_cancel_request` is applied instead.
        Each verdict that is applied is counted in `statistics`, in the same transaction.
        """
        ...

    async def cancel(self, ids: Sequence[str]) -> list[Answer]:
        """Cancel waiting jobs at once, and record the request for running jobs, whose status in the answer is PROCESSING.

        A job that a worker claims at the same time is either cancelled before the claim or has the request recorded. A
        running job that succeeds despite the request ends COMPLETED; every other outcome ends it CANCELLED. Refuses ended
        jobs.
        """
        ...

    async def retry(self, ids: Sequence[str], *, at: datetime | None = None) -> list[Answer]:
        """Start a new generation of FAILED or CANCELLED jobs. Refuses all other jobs.

        Such a job is due now, or at a later time `at`, no longer expires, and has all its retries again. Its history stays,
        and its tokens continue, so a run of the old generation cannot settle the new one. What a claim clears of the last
        run's progress is cleared at once.
        """
        ...

    async def restore(self, id: str, *, within: timedelta) -> Answer:
        """Undo the cancel of a waiting job that was cancelled `within` this time, as a new generation.

        The job waits again with its due time, lane, expiry and attempts, as if it had not been cancelled. Only its unique
        key is no longer in force: another job with that key can be added. Refuses jobs that ended otherwise, also by a
        cancel while they ran, and jobs whose cancel was, or will be, sent to a webhook.
        """
        ...

    async def change(self, id: str, change: Change) -> Answer:
        """Change a waiting job in place. A new time moves it to the scheduled lane. Refuses running and ended jobs.

        A change with revisions refuses a job that has another one. It compares and changes in one transaction, so of two
        changes that expect the same revision only one is made.
        """
        ...

    async def remove(self, ids: Sequence[str]) -> list[Answer]:
        """Delete ended jobs with their history. Their idempotency keys stay until they expire. Refuses all other jobs."""
        ...

    async def purge(self, status: Status, *, older_than: timedelta, limit: int, queue: str | None = None) -> int:
        """Delete up to `limit` jobs that ended with this status at least so long ago, and return their number.

        Also deletes idempotency keys that have expired.
        """
        ...

    async def housekeep(self, retention: Retention, *, limit: int) -> HousekeepingResult:
        """Do one piece of housekeeping, on about `limit` jobs. Any number of processes may do it at the same time.

        It applies `EXPIRED` to waiting jobs that have expired, and `UNKNOWN_TYPE` to jobs that were parked and due for
        `NO_HANDLER_GRACE` while live workers served their queue and none of them knew their type. It deletes the oldest
        ended jobs that neither the retention of their queue nor, if the queue has none, this one keeps. It deletes
        expired idempotency keys, and workers that sent no heartbeat for a day.
        """
        ...

    async def get(self, id: str) -> Job | None:
        """Return the job with its attempts and its log, None if no job has this id."""
        ...

    async def find(self, query: Query) -> Page:
        """Return a page of the jobs that match, in the order of the query, with their attempts and without their logs.

        Pages join without gap or overlap, also when jobs are added or removed in between. A page may end early, see
        `Page.complete`. A search that may have to read jobs that do not match runs beside all other verbs, and only a few
        run at once. With a time limit it raises `TooManySearches` if no running search ends in time, and `SearchTooSlow` if
        it is stopped itself.
        """
        ...

    async def count(self, query: Query) -> Count:
        """Count the jobs that match, at most `MOST_READ` of them. Limited as a search is."""
        ...

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        """Return the queues that were ever named, by name, with their counts. Counting is limited as a search is."""
        ...

    async def set_queue(self, name: str, change: QueueChange) -> Queue:
        """Change a queue, or create it, and return its settings. The next claim of every process follows them."""
        ...

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Register a worker, or record that it is still alive. Its start stays that of the first heartbeat."""
        ...

    async def retire(self, worker_id: str) -> None:
        """Delete a worker that has stopped."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Return all registered workers with the age of their last heartbeat."""
        ...

    def subscribe(self, topic: Topic) -> AbstractContextManager[Subscription]:
        """Subscribe to notifications on this topic, from this process and from all others, for the duration of a block."""
        ...
