"""`Client`: everything that a caller may ask of demora. Python code, the HTTP service, the dashboard and the command line
use it.

The verbs on single jobs are here. All others are in the parts of the client, one file each.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar, Unpack, cast, overload

import msgspec

from ..core import action
from ..core.action import OWN_QUEUES
from ..core.filters import JobFilter
from ..core.job import DEFAULT_LEASE, Job, NewJob, Priority, due_at, expires_before, lane_for, revision
from ..core.outbound import webhook
from ..core.outbound.targets import Policy, check_target, read_url
from ..core.pace import USUAL_PACE, Pace
from ..core.payload import pack_object
from ..core.request import (
    LONGEST_TIMEOUT,
    EnqueueOptions,
    JobOptions,
    check_at,
    check_expiry,
    check_priority,
    check_tags,
    check_type,
    make_job,
)
from ..core.spans import say, span, timestamp
from ..core.spans import spread as spread_over
from ..core.states import ENDED, RETRYABLE, WAITING, Status
from ..errors import (
    Invalid,
    JobChanged,
    JobFailed,
    JobNotFound,
    KeyReused,
    StillRunning,
    UndoTooLate,
    UnknownJobType,
    WrongState,
)
from ..handlers.registry import Handler, Registry
from ..store.jobs import Added, Answer, Change, Count, Page, Topic
from ..store.store import Store
from ..store.transaction import CallerTransaction, Transactional
from ..system import crash, traces
from ..system.ids import new_id
from .actions import Actions
from .api_keys import ApiKeys
from .bulk import USUAL_PAGE, Bulk, FindOptions, check_query, page_query
from .counts import Counts
from .diagnostics import Diagnostics
from .events import EventReader, Events, ReaderSource
from .paces import Paces
from .queues import MOST_PER_PAGE, Queues
from .schedules import Schedules
from .statistics import Statistics
from .webhooks import Webhooks
from .workers.recovery import Recovery
from .workers.remote_workers import RemoteWorkers

T = TypeVar("T")

MOST_PER_CALL = 100_000
UNDO_WITHIN = timedelta(seconds=30)


class Client:
    """The verbs of an application on its store. The registry gives the defaults of the job types that are known here."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        new_id: Callable[[], str] = new_id,
        outbound: Policy | None = None,
        usual_pace: Pace = USUAL_PACE,
        longest_timeout: timedelta = LONGEST_TIMEOUT,
        lease: timedelta = DEFAULT_LEASE,
    ) -> None:
        self.store, self.registry, self._new_id = store, registry, new_id
        self._outbound, self._longest_timeout = outbound or Policy(), longest_timeout
        self._traces = traces.configured()

        bulk, counts, diagnostics = Bulk(store), Counts(store), Diagnostics(store)
        self.keys, self.webhooks, self.actions = ApiKeys(store.api_keys), Webhooks(store), Actions(store, bulk, new_id)
        self.remote_workers = RemoteWorkers(store, registry, lease=lease, longest=longest_timeout)
        reader = EventReader(store)
        self.events = Events(lambda which, after: ReaderSource(reader, after)).events
        self._offer_queues(Queues(store, self.check_webhook_url))
        self._offer_paces(Paces(store.paces, usual_pace))
        self._offer_schedules(Schedules(store, registry, self.make, new_id))
        self._offer_many_jobs(bulk, counts)
        self._offer_recovery(Recovery(store, registry.retry_state))
        self._offer_diagnostics(diagnostics)
        self._offer_statistics(Statistics(store, counts, diagnostics))

    # Each verb of these parts is also a verb of the client. They are listed by name, so that type checkers and editors know
    # them; `remote_client` replaces some of them.

    def _offer_queues(self, queues: Queues) -> None:
        self.queues, self.queues_page, self.queue = queues.queues, queues.queues_page, queues.queue
        self.pause, self.resume, self.set_queue = queues.pause, queues.resume, queues.set_queue

    def _offer_paces(self, paces: Paces) -> None:
        self.set_pace, self.take_pace_off, self.apply_paces = paces.set_pace, paces.take_pace_off, paces.apply_paces
        self.use_default_pace, self.preview_pace = paces.use_default_pace, paces.preview_pace
        self.delayed_stats = paces.delayed_stats
        self.pacings, self.pacing, self.pace_changes = paces.pacings, paces.pacing, paces.pace_changes
        self.why, self.why_many = paces.why, paces.why_many

    def _offer_schedules(self, schedules: Schedules) -> None:
        self.add_schedule, self.change_schedule = schedules.add_schedule, schedules.change_schedule
        self.pause_schedule, self.resume_schedule = schedules.pause_schedule, schedules.resume_schedule
        self.trigger_schedule, self.remove_schedule = schedules.trigger_schedule, schedules.remove_schedule
        self.schedule, self.schedules, self.next_runs = schedules.schedule, schedules.schedules, schedules.next_runs
        self.preview_schedule, self.schedule_jobs = schedules.preview_schedule, schedules.schedule_jobs
        self.fire_records, self.backfill_schedule = schedules.fire_records, schedules.backfill_schedule
        self.define_schedules = schedules.define_schedules

    def _offer_many_jobs(self, bulk: Bulk, counts: Counts) -> None:
        self.retry_many, self.delete_many, self.cancel_many = bulk.retry_many, bulk.delete_many, bulk.cancel_many
        self.purge = bulk.purge
        self.stats, self.dead_letter_stats = counts.stats, counts.dead_letter_stats
        self.failure_groups = counts.failure_groups

    def _offer_recovery(self, recovery: Recovery) -> None:
        self.recover, self.give_up = recovery.recover, recovery.give_up

    def _offer_diagnostics(self, diagnostics: Diagnostics) -> None:
        self.workers, self.registered_workers = diagnostics.workers, diagnostics.registered_workers
        self.registered_schedulers = diagnostics.registered_schedulers
        self.health, self.notes, self.line_used = diagnostics.health, diagnostics.notes, diagnostics.line_used
        self.overview, self.activity = diagnostics.overview, diagnostics.activity
        self.coming, self.sizes = diagnostics.coming, diagnostics.sizes
        self.evidence, self.end_audit = diagnostics.evidence, diagnostics.end_audit
        self.compare_line, self.rebuild_line = diagnostics.compare_line, diagnostics.rebuild_line

    def _offer_statistics(self, statistics: Statistics) -> None:
        self.metrics_overview, self.metrics_queues = statistics.metrics_overview, statistics.metrics_queues
        self.metrics_types, self.metrics_workers = statistics.metrics_types, statistics.metrics_workers
        self.pace_history = statistics.pace_history
        self.flow, self.flow_of_queue = statistics.flow, statistics.flow_of_queue
        self.flow_of_queues = statistics.flow_of_queues

    def use(self, part: object) -> None:
        """Use the verbs of another part in the place of those with the same names."""
        for name in dir(part):
            if not name.startswith("_"):
                setattr(self, name, getattr(part, name))

    def make(self, type: str, payload: Any = None, **options: Unpack[JobOptions]) -> NewJob:
        """Check a request and return the job, not stored yet. Options that are left out have the defaults of the type."""
        if check_type(type) == webhook.TYPE:  # a caller that could add one could have any text signed
            raise Invalid("type", f"{webhook.TYPE} is added by demora itself, when a job with a webhook ends")
        if type == action.TYPE:  # a caller that may only add jobs could act on all of them
            raise Invalid("type", f"{action.TYPE} is added by demora itself; POST /api/v1/jobs/actions asks for one")
        handler = self.registry.expect(type)
        if handler is not None:
            options = handler.with_defaults(options)
        job = make_job(self._new_id(), type, payload, options, now=datetime.now(UTC))
        if job.queue in OWN_QUEUES:  # every worker serves it, no pace holds it, and verbs on many jobs leave it alone
            raise Invalid("queue", f"{job.queue} is for jobs that demora adds itself")
        if job.timeout is not None:
            self._check_timeout(job.timeout, handler)
        if job.webhook_url is not None:
            self.check_webhook_url(job.webhook_url)
        if handler is not None:
            handler.fields(job.payload)
        return job

    def make_many(self, requests: Iterable[Any], *, spread: timedelta | str | None = None) -> list[NewJob]:
        """Check requests as `enqueue_many` takes them. The field of an `Invalid` says which one, `jobs[3].type`, and so does
        the `job` of an `UnknownJobType`."""
        jobs: list[NewJob] = []
        before: AskedJob | None = None
        for n, request in enumerate(requests):
            asked = read_request(request, n)
            try:
                if isinstance(asked, NewJob):
                    job = asked
                elif before is not None and _alike(asked, before):
                    job = self._make_like(jobs[-1], asked.payload)
                else:
                    job = self.make(asked.type, asked.payload, **asked.options)
            except Invalid as problem:
                raise problem.__class__(f"jobs[{n}].{problem.field}", problem.reason) from None
            except UnknownJobType as problem:
                problem.job = n
                raise
            before = asked if isinstance(asked, AskedJob) and job.key is None and job.unique is None else None
            jobs.append(job)
        return jobs if spread is None else _spread(jobs, spread)

    def _make_like(self, job: NewJob, payload: Any) -> NewJob:
        """Check a payload, and return a new job that has it and is otherwise like this one, whose options are checked."""
        packed = pack_object({} if payload is None else payload, "payload")
        handler = self.registry.get(job.type)
        if handler is not None:
            handler.fields(packed)
        return msgspec.structs.replace(job, id=self._new_id(), payload=packed)

    async def add(self, jobs: Sequence[NewJob], *, within: Any = None) -> list[tuple[Job, bool]]:
        """Store jobs, all or none, and return each with whether it existed before.

        A job existed before if its idempotency key or its unique key belongs to an earlier one. A job found
        by its idempotency key is returned as it was when it was added; one found by its unique key, as it is now. If
        `within` is a connection of the caller, the jobs exist if and when the transaction on that connection commits.
        """
        if len(jobs) > MOST_PER_CALL:
            raise Invalid("jobs", f"at most {MOST_PER_CALL:,} jobs may be added in one call")
        if self._traces is not None and jobs:
            queues, ids, parent = [job.queue for job in jobs], [job.id for job in jobs], jobs[0].traceparent
            with self._traces.adding(queues, ids, parent) as traceparent:
                return await self._add([msgspec.structs.replace(job, traceparent=traceparent) for job in jobs], within)
        return await self._add(jobs, within)

    async def _add(self, jobs: Sequence[NewJob], within: Any) -> list[tuple[Job, bool]]:
        store = self.store if within is None else self._joined(within)
        answers = await store.add(jobs)
        crash.at("client.added")
        added = []
        for n, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            if answer.conflict:
                raise KeyReused(job.key.key if job.key else "", n if len(jobs) > 1 else None)
            was_there = answer.replayed or answer.kept or answer.replaced
            differs = was_there and _may_differ(job, answer)
            added.append((await _read_earlier(store, job, answer) if differs else as_added(job, answer), was_there))
        return added

    async def enqueue(self, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Store one job. It is durable when this returns or, `within` a transaction of the caller, when that commits.

        `Invalid` names the argument that is wrong; then nothing is stored.
        """
        within = options.pop("within", None)
        of_job: JobOptions = options
        [(job, _)] = await self.add([self.make(type, payload, **of_job)], within=within)
        return job

    async def enqueue_many(
        self, requests: Iterable[Any], *, within: Any = None, spread: timedelta | str | None = None
    ) -> list[Job]:
        """Store many jobs, all or none, also `within` a transaction of the caller.

        A request is a `NewJob`, `(type, payload)`, `(type, payload, options)`, or a dict with the arguments of `enqueue`.
        With a `spread` the jobs are due evenly over that span, the first one at once.
        """
        jobs = self.make_many(requests, spread=spread)
        return [job for job, _ in await self.add(jobs, within=within)] if jobs else []

    async def get(self, id: str) -> Job:
        """Return the job with its attempts and its log; `JobNotFound` if no job has this id."""
        job = await self.store.get(id)
        if job is None:
            raise JobNotFound(id)
        return job

    async def find(self, filter: JobFilter | str | None = None, **options: Unpack[FindOptions]) -> Page:
        """Return a page of the jobs that match a filter, or a search such as `status:failed type:email.*`, and the parts of
        a filter that are given by themselves. Pass the `next` of a page as `after` to get the following one.

        Unless `sort` says otherwise, a list of waiting jobs begins with the one that is due next, a list of ended ones with
        the one that ended last, and any other list with the newest job. A page that is not `complete` ended early because
        too many jobs had to be read that do not match: the following page continues there.

        `fields` says which of payload and result to read; leave them out of long lists. A page ends before its `limit` where
        it would hold more than `most_bytes`. With a time limit, `within`, a slow search raises `SearchTooSlow`.
        """
        if not 1 <= options.get("limit", USUAL_PAGE) <= MOST_PER_PAGE:
            raise Invalid("limit", f"must be from 1 to {MOST_PER_PAGE}")
        return await self.store.find(page_query(filter, options))

    async def count(
        self, filter: JobFilter | str | None = None, /, *, within: timedelta | None = None, **parts: Any
    ) -> Count:
        """Count the jobs that match a filter or a search, and the parts of a filter that are given as for `find`. Counting
        stops at 100,000 jobs, or when too many jobs had to be read that do not match; then it is not `complete`."""
        return await self.store.count(check_query(filter, within=within, sort=None, **parts))

    @overload
    async def wait(self, job: Job[T], timeout: timedelta | str | None = None) -> Job[T]: ...
    @overload
    async def wait(self, job: str, timeout: timedelta | str | None = None) -> Job: ...
    async def wait(self, job: Job | str, timeout: timedelta | str | None = None) -> Job:
        """Wait until the job, given itself or by its id, has ended, and return it. After the `timeout` return it as it is
        then."""
        id = _id_of(job)
        left = None if timeout is None else span(timeout, "timeout").total_seconds()
        now = asyncio.get_running_loop().time
        deadline = None if left is None else now() + left
        with self.store.subscribe(Topic.ENDED) as subscription:
            while True:
                subscription.clear()
                found = await self.get(id)
                left = None if deadline is None else deadline - now()
                if found.status.ended or (left is not None and left <= 0):
                    return found
                del found  # a wait holds no payload
                await subscription.wait(left)

    @overload
    async def result(self, job: Job[T], timeout: timedelta | str | None = None) -> T: ...
    @overload
    async def result(self, job: str, timeout: timedelta | str | None = None) -> Any: ...
    async def result(self, job: Job[T] | str, timeout: timedelta | str | None = None) -> T | Any:
        """Wait until the job has ended, and return what its handler returned.

        Given the id, the result is as JSON has it. Given the `Job`, it has the type that the handler is annotated to return,
        if this process has the handler and the result fits. `JobFailed` if the job ended without a result, `StillRunning` if
        it has not ended within the `timeout`.
        """
        ended = await self.wait(job, timeout)
        if ended.status is Status.COMPLETED:
            handler = None if isinstance(job, str) else self.registry.get(ended.type)
            return ended.result if handler is None else handler.result(ended.result_json)
        if ended.status.ended:
            raise JobFailed(ended.id, ended.status.name, ended.error)
        raise StillRunning(ended.id, ended.status.name)

    async def cancel(self, id: str) -> Status:
        """Cancel a job, and return its status.

        A waiting job is CANCELLED at once. For a running job the request is recorded and the status is PROCESSING; its
        worker sees the request within a second.
        """
        [answer] = await self.store.cancel([id])
        return _done(answer, id, "cancel", frozenset(Status) - ENDED)

    async def undo_cancel(self, id: str) -> Job:
        """Let a waiting job that was cancelled within the last 30 s wait again, with its due time, lane and expiry.

        `UndoTooLate` if it was cancelled earlier or while it ran, or if the cancel was sent to a webhook. Unlike `retry` it
        changes no due time: a reminder for May is still one for May.
        """
        answer = await self.store.restore(id, within=UNDO_WITHIN)
        if answer.status is None:
            raise JobNotFound(id)
        if not answer.did:
            raise UndoTooLate(id, answer.status.name)
        return await self.get(id)

    async def retry(self, id: str) -> Job:
        """Run a failed or cancelled job again, as a new generation of the same job; `WrongState` for any other job."""
        [answer] = await self.store.retry([id])
        _done(answer, id, "retry", RETRYABLE)
        return await self.get(id)

    async def reschedule(
        self,
        id: str,
        *,
        at: datetime | None = None,
        delay: timedelta | str | None = None,
        priority: Priority | str | None = None,
        tags: Iterable[str] | None = None,
        revisions: Iterable[str] | None = None,
    ) -> Job:
        """Change the time, the priority or the tags of a waiting job. The job keeps its id.

        `WrongState` if the job no longer waits. `Invalid` if it would expire before its new time. With `revisions`,
        `JobChanged` if the job has none of them; of two changes that expect the same revision only one is made.
        """
        if at is not None and delay is not None:
            raise Invalid("delay", "give either a time or a delay, not both")
        if at is None and delay is None and priority is None and tags is None:
            raise Invalid("at", "nothing to change; give a time, a delay, a priority or tags")
        change = Change(
            priority=None if priority is None else check_priority(priority),
            at=None if at is None else check_at(at, datetime.now(UTC)),
            delay=None if delay is None else span(delay, "delay"),
            tags=None if tags is None else check_tags(tags),
            revisions=None if revisions is None else frozenset(revisions),
        )
        if change.at is not None or change.delay is not None:
            _expect_in_time(await self.get(id), change)
        answer = await self.store.change(id, change)
        if change.revisions is not None and not answer.did and revision(await self.get(id)) not in change.revisions:
            raise JobChanged(id)
        _done(answer, id, "reschedule", WAITING)
        return await self.get(id)

    async def delete(self, id: str) -> None:
        """Delete an ended job with its history; `WrongState` if it has not ended."""
        [answer] = await self.store.remove([id])
        _done(answer, id, "delete", ENDED)

    def check_webhook_url(self, url: str) -> None:
        """Refuse a URL that demora must not call under the outbound policy."""
        check_target(read_url(url, "webhook_url"), self._outbound, "webhook_url")

    def _check_timeout(self, timeout: timedelta, handler: Handler | None) -> None:
        """Refuse a timeout over the limit. If the default timeout of the type is longer, that is the limit."""
        most = self._longest_timeout if handler is None else max(self._longest_timeout, handler.defaults.timeout)
        if timeout > most:
            raise Invalid("timeout", f"at most {say(most)} is allowed here; the setting DEMORA_MAX_TIMEOUT allows more")

    def _joined(self, connection: Any) -> CallerTransaction:
        if isinstance(self.store, Transactional):
            return self.store.within(connection)
        raise Invalid(
            "within",
            "only jobs in PostgreSQL can be added in a transaction of yours, and those of this application are in SQLite: "
            "enqueue without it once you have committed, or set DEMORA_DATABASE_URL to your PostgreSQL",
        )


class AskedJob(NamedTuple):
    """A job in a call of `enqueue_many` that is not checked yet."""

    type: str
    payload: Any
    options: JobOptions


def read_request(request: Any, n: int) -> NewJob | AskedJob:
    """Return the `n`-th request of `enqueue_many`, whatever its form. `Invalid` if it has none of them."""
    match request:
        case NewJob():
            return request
        case (type, payload):
            return AskedJob(type, payload, {})
        case (type, payload, options):
            return AskedJob(type, payload, cast(JobOptions, dict(options)))
        case {"type": type}:
            rest = {name: value for name, value in request.items() if name != "type"}
            return AskedJob(type, rest.pop("payload", None), cast(JobOptions, rest))
    raise Invalid(f"jobs[{n}]", "must be a NewJob, (type, payload), (type, payload, options) or a dict with a type")


def _alike(one: AskedJob, other: AskedJob) -> bool:
    """Return whether two requests differ in their payloads at most."""
    if not _same(one.type, other.type):
        return False
    if not one.options and not other.options:
        return True
    return one.options.keys() == other.options.keys() and all(
        _same(value, other.options.get(name)) for name, value in one.options.items()
    )


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are checked with the same result. Equal ones are not always: True equals 1."""
    return one is other or (type(one) is type(other) and bool(one == other))


def _spread(jobs: Sequence[NewJob], over: timedelta | str) -> list[NewJob]:
    """Return the jobs with due times spread evenly. A job with a due time of its own is refused."""
    for n, job in enumerate(jobs):
        if job.at is not None or job.delay is not None:
            raise Invalid(f"jobs[{n}].delay", "spread says when each job is due; give neither a time nor a delay with it")
    delays = spread_over(len(jobs), over)
    spread = [msgspec.structs.replace(job, delay=delay) for job, delay in zip(jobs, delays, strict=True)]
    now = datetime.now(UTC)
    for n, job in enumerate(spread):
        check_expiry(job, now, f"jobs[{n}].")
    return spread


def _expect_in_time(job: Job, change: Change) -> None:
    """Refuse a new time at which a job that has had no attempt would have expired."""
    due = due_at(change.at, change.delay, datetime.now(UTC))
    if job.expires_at is not None and expires_before(job, due):
        field = "at" if change.at is not None else "delay"
        raise Invalid(field, f"the job would expire before it is due, at {timestamp(job.expires_at)}")


def _id_of(job: Job | str) -> str:
    return job if isinstance(job, str) else job.id


def _may_differ(job: NewJob, answer: Added) -> bool:
    """Whether the earlier job that a request gave may differ from it in everything but the type."""
    return answer.kept or (answer.replayed and job.unique is not None)


async def _read_earlier(store: Store | CallerTransaction, job: NewJob, answer: Added) -> Job:
    """Return the earlier job as it is now, or as requested if it was purged in the meantime."""
    return await store.get(answer.id) or as_added(job, answer)


def as_added(job: NewJob, added: Added) -> Job:
    """Return a job as it was when it was added."""
    return Job(  # in the order of its fields: names would take longer than all the rest
        added.id,
        job.name,
        job.type,
        job.queue,
        job.payload,
        job.priority,
        Status.QUEUED,
        lane_for(added.scheduled_at, added.created_at),
        added.created_at,
        added.scheduled_at,
        added.scheduled_at,
        job.max_retries,
        job.retry_delay,
        job.timeout,
        job.tags,
        job.webhook_url,
        webhook_on_cancel=job.webhook_on_cancel,
        expires_at=job.expires_at if job.expires_in is None else added.created_at + job.expires_in,
        unique_key=None if job.unique is None else job.unique.key,
    )


def _done(answer: Answer, id: str, verb: str, allowed: Set[Status]) -> Status:
    """Return the status after a request that was carried out; raise the reason if it was not."""
    if answer.status is None:
        raise JobNotFound(id)
    if not answer.did:
        raise WrongState(
            id, verb, answer.status.name, " or ".join(status.name for status in sorted(allowed - {Status.PENDING}))
        )
    return answer.status
