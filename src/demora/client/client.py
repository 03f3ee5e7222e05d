"""What an application may ask: the one client that Python code, HTTP, CLI and dashboard all speak through."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from uuid_utils import uuid7

from ..core import webhook
from ..core.job import Job, Lane, NewJob, Priority
from ..core.outbound import Policy, check_target, read_url
from ..core.request import LONGEST_TIMEOUT, check_at, check_expiry, check_priority, check_tags, check_type, make_job
from ..core.spans import ZERO, say, span, timestamp
from ..core.spans import spread as spread_over
from ..core.states import ENDED, RETRYABLE, WAITING, Status
from ..errors import Invalid, JobFailed, JobNotFound, KeyReused, StillRunning, StoreError, WrongState
from ..handlers.registry import Handler, Registry
from ..store.audit import AuditStore, Evidence
from ..store.jobs import Added, Answer, Change, Page, Store, Topic, WorkerRecord
from ..store.transaction import CallerTransaction, Transactional
from ..system import crash
from .api_keys import ApiKeys
from .bulk import FIELDS, check_query
from .operator import Upkeep
from .paces import Pacer
from .queues import MOST_PER_PAGE, Queues
from .webhooks import Webhooks
from .why import LIVE_WITHIN

MOST_PER_CALL = 100_000


def new_id() -> str:
    return str(uuid7())


class Health(msgspec.Struct, frozen=True):
    """Whether jobs are being run: `healthy`, or `degraded` with the reason. `notes` say what works in another way than usual
    and is no fault, such as workers that look for jobs because nobody can wake them."""

    status: str
    reason: str | None
    workers: int
    notes: tuple[str, ...] = ()


class Client(Upkeep, Pacer, Queues):
    """Speaks to a store on behalf of an application; knows the defaults of the types that are registered."""

    def __init__(
        self, store: Store, registry: Registry, *, new_id: Callable[[], str] = new_id, outbound: Policy | None = None
    ) -> None:
        self.store, self.registry, self._new_id = store, registry, new_id
        self.keys, self.webhooks, self._outbound = ApiKeys(store), Webhooks(store), outbound or Policy()
        self.longest_timeout = LONGEST_TIMEOUT

    def make(self, type: str, payload: Any = None, **options: Any) -> NewJob:
        """A checked job that is not stored yet. Options are those of `enqueue`; the type's defaults fill the gaps."""
        if check_type(type) == webhook.TYPE:  # whoever could add one could have anything signed
            raise Invalid("type", f"{webhook.TYPE} is added by demora itself, when a job with a webhook ends")
        handler = self.registry.expect(type)
        if handler is not None:
            for name, usual in handler.usual:
                if options.get(name) is None:
                    options[name] = usual
        try:
            job = make_job(self._new_id(), type, payload, now=datetime.now(UTC), **options)
        except TypeError as problem:
            raise Invalid("options", str(problem).removeprefix("make_job() ")) from None
        if job.timeout is not None:
            self._check_timeout(job.timeout, handler)
        if job.webhook_url is not None:
            self.check_webhook_url(job.webhook_url)
        if handler is not None:
            handler.fields(job.payload)
        return job

    def make_many(self, requests: Iterable[Any], *, spread: timedelta | str | None = None) -> list[NewJob]:
        """Like `make`, for requests as `enqueue_many` takes them; `Invalid` says which one: `jobs[3].type`."""
        jobs = [self._from_wish(request, n) for n, request in enumerate(requests)]
        return jobs if spread is None else _spread(jobs, spread)

    async def add(self, jobs: Sequence[NewJob], *, within: Any = None) -> list[tuple[Job, bool]]:
        """Store jobs, all or none; each answer says whether a key gave an earlier job instead of a new one.

        A job that was given instead is shown as it was when it was made. With a connection of the caller's to be `within`,
        the jobs are there if and when its transaction commits.
        """
        if len(jobs) > MOST_PER_CALL:
            raise Invalid("jobs", f"at most {MOST_PER_CALL:,} jobs may be added in one call")
        store = self.store if within is None else self._joined(within)
        answers = await store.add(jobs)
        crash.at("client.added")
        added = []
        for n, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            if answer.conflict:
                raise KeyReused(job.key.key if job.key else "", n if len(jobs) > 1 else None)
            stored = await _standing(store, job, answer) if _stands(job, answer) else _as_added(job, answer)
            added.append((stored, _was_there(answer)))
        return added

    async def enqueue(self, type: str, payload: Any = None, *, within: Any = None, **options: Any) -> Job:
        """Store one job: durable when this returns, or `within` a transaction of the caller's when that commits. `Invalid`
        names what is wrong with it, and then nothing is stored."""
        [(job, _)] = await self.add([self.make(type, payload, **options)], within=within)
        return job

    async def enqueue_many(
        self, requests: Iterable[Any], *, within: Any = None, spread: timedelta | str | None = None
    ) -> list[Job]:
        """Store many jobs, all or none, also `within` a transaction. A request is a `NewJob`, `(type, payload)`,
        `(type, payload, options)` or a dict. With a `spread` they are due evenly over that span, the first at once."""
        jobs = self.make_many(requests, spread=spread)
        return [job for job, _ in await self.add(jobs, within=within)] if jobs else []

    async def get(self, id: str) -> Job:
        job = await self.store.get(id)
        if job is None:
            raise JobNotFound(id)
        return job

    async def find(
        self,
        *,
        status: Iterable[Status | str] | Status | str = (),
        queue: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        older_than: timedelta | str | None = None,
        after: str | None = None,
        limit: int = 50,
        fields: Iterable[str] = FIELDS,
        most_bytes: int | None = None,
        within: timedelta | None = None,
    ) -> Page:
        """Jobs, newest first, page by page: give the `next` of one page as `after` for the following one.

        `fields` says which of payload and result are read; leave them out of long lists. A page may end before its limit,
        where it would hold more than `most_bytes`. With a limit of time, `within`, a slow search raises `SearchTooSlow`.
        """
        if not 1 <= limit <= MOST_PER_PAGE:
            raise Invalid("limit", f"must be from 1 to {MOST_PER_PAGE}")
        query = check_query(
            status=status,
            queue=queue,
            type=type,
            tag=tag,
            older_than=older_than,
            after=after,
            limit=limit,
            fields=fields,
            most_bytes=most_bytes,
            within=within,
        )
        return await self.store.find(query)

    async def wait(self, id: str, timeout: timedelta | str | None = None) -> Job:
        """The job once it has ended, or as it is when the time is up."""
        left = None if timeout is None else span(timeout, "timeout").total_seconds()
        now = asyncio.get_running_loop().time
        deadline = None if left is None else now() + left
        with self.store.subscribe(Topic.ENDED) as bell:
            while True:
                bell.clear()
                job = await self.get(id)
                left = None if deadline is None else deadline - now()
                if job.status.ended or (left is not None and left <= 0):
                    return job
                await bell.wait(left)

    async def result(self, id: str, timeout: timedelta | str | None = None) -> Any:
        """What the handler returned, once it has; `JobFailed` if the job ended otherwise, `StillRunning` if time is up."""
        job = await self.wait(id, timeout)
        if job.status is Status.COMPLETED:
            return job.result
        if job.status.ended:
            raise JobFailed(id, job.status.name, job.error)
        raise StillRunning(id, job.status.name)

    async def cancel(self, id: str) -> Status:
        """CANCELLED if the job was waiting; PROCESSING if it runs, whose worker hears of it within a second."""
        [answer] = await self.store.cancel([id])
        return _done(answer, id, "cancel", frozenset(Status) - ENDED)

    async def retry(self, id: str) -> Job:
        """Run a failed or cancelled job again, as a new generation of the same job."""
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
    ) -> Job:
        """Change when a waiting job runs, its priority or its tags; it keeps its id."""
        if at is not None and delay is not None:
            raise Invalid("delay", "give either a time or a delay, not both")
        if at is None and delay is None and priority is None and tags is None:
            raise Invalid("at", "nothing is to be changed; give a time, a delay, a priority or tags")
        change = Change(
            priority=None if priority is None else check_priority(priority),
            at=None if at is None else check_at(at, datetime.now(UTC)),
            delay=None if delay is None else span(delay, "delay"),
            tags=None if tags is None else check_tags(tags),
        )
        if change.at is not None or change.delay is not None:
            _expect_in_time(await self.get(id), change)
        _done(await self.store.change(id, change), id, "change", WAITING)
        return await self.get(id)

    async def delete(self, id: str) -> None:
        """Remove an ended job with its history."""
        [answer] = await self.store.remove([id])
        _done(answer, id, "delete", ENDED)

    async def workers(self) -> list[WorkerRecord]:
        """The workers that are alive."""
        return [worker for worker in await self.store.workers() if worker.heartbeat_ago < LIVE_WITHIN]

    async def health(self) -> Health:
        """Asks the store, also for a write that means nothing; raises what that raises."""
        await self._probe()
        alive = len(await self.workers())
        reason = None if alive else "no live worker: jobs wait until one is started (demora worker)"
        return Health("healthy" if alive else "degraded", reason, alive, self.notes())

    async def evidence(self) -> Evidence:
        """All that the store can show to a checker of its promises, as of one moment."""
        return await self._audited().evidence()

    async def end_audit(self) -> None:
        """Write no more events of what becomes of jobs, in no process, and forget those that were written."""
        await self._audited().end_audit()

    def check_webhook_url(self, url: str) -> None:
        check_target(read_url(url, "webhook_url"), self._outbound, "webhook_url")

    def _check_timeout(self, timeout: timedelta, handler: Handler | None) -> None:
        """Refuse a timeout over the limit; a type whose own timeout is longer has that for its limit."""
        most = self.longest_timeout if handler is None else max(self.longest_timeout, handler.defaults.timeout)
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

    def _audited(self) -> AuditStore:
        if isinstance(self.store, AuditStore):
            return self.store
        raise StoreError("this store shows nothing to a checker")

    def _from_wish(self, request: Any, n: int) -> NewJob:
        try:
            match request:
                case NewJob():
                    return request
                case (type, payload):
                    return self.make(type, payload)
                case (type, payload, options):
                    return self.make(type, payload, **options)
                case {"type": type}:
                    return self.make(type, **{name: value for name, value in request.items() if name != "type"})
        except Invalid as problem:
            raise problem.__class__(f"jobs[{n}].{problem.field}", problem.reason) from None
        raise Invalid(f"jobs[{n}]", "must be a NewJob, (type, payload), (type, payload, options) or a dict with a type")


def _spread(jobs: Sequence[NewJob], over: timedelta | str) -> list[NewJob]:
    """The jobs with even due times; none may have one of its own."""
    for n, job in enumerate(jobs):
        if job.at is not None or job.delay is not None:
            raise Invalid(f"jobs[{n}].delay", "spread says when each job is due; give neither a time nor a delay with it")
    delays = spread_over(len(jobs), over)
    spread = [msgspec.structs.replace(job, delay=delay) for job, delay in zip(jobs, delays, strict=True)]
    for n, job in enumerate(spread):
        check_expiry(job, datetime.now(UTC), f"jobs[{n}].")
    return spread


def _expect_in_time(job: Job, change: Change) -> None:
    """Refuse to move a job that has not run yet to where it would have expired."""
    due = change.at or datetime.now(UTC) + (change.delay or ZERO)
    if job.expires_at is not None and job.expires_at <= due and job.attempt == 0 and job.status.waiting:
        field = "at" if change.at is not None else "delay"
        raise Invalid(field, f"the job would expire before it is due, at {timestamp(job.expires_at)}")


def _was_there(answer: Added) -> bool:
    return answer.replayed or answer.kept or answer.replaced


def _stands(job: NewJob, answer: Added) -> bool:
    """Whether another job may stand for the one asked for: it can differ from it in all but its type."""
    return answer.kept or (answer.replayed and job.unique is not None)


async def _standing(store: Store | CallerTransaction, job: NewJob, answer: Added) -> Job:
    """The job that stands for the one asked for; as asked for if it has ended and was purged since."""
    return await store.get(answer.id) or _as_added(job, answer)


def _as_added(job: NewJob, added: Added) -> Job:
    """A job as it was when it was made."""
    later = added.scheduled_at > added.created_at
    return Job(
        id=added.id,
        name=job.name,
        type=job.type,
        queue=job.queue,
        payload_json=job.payload,
        priority=job.priority,
        status=Status.QUEUED,
        lane=Lane.SCHEDULED if later else Lane.REALTIME,
        created_at=added.created_at,
        scheduled_at=added.scheduled_at,
        due_at=added.scheduled_at,
        max_retries=job.max_retries,
        retry_delay=job.retry_delay,
        timeout=job.timeout,
        tags=job.tags,
        webhook_url=job.webhook_url,
        webhook_on_cancel=job.webhook_on_cancel,
        expires_at=job.expires_at if job.expires_in is None else added.created_at + job.expires_in,
        unique_key=None if job.unique is None else job.unique.key,
    )


def _done(answer: Answer, id: str, verb: str, allowed: Iterable[Status]) -> Status:
    """The status after a request that was carried out; otherwise the error that says why it was not."""
    if answer.status is None:
        raise JobNotFound(id)
    if not answer.did:
        raise WrongState(id, verb, answer.status.name, " or ".join(status.name for status in sorted(allowed)))
    return answer.status
