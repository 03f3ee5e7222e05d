"""The client of programs that may reach a service but not its database: its verbs ask the service."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, Unpack, cast, overload
from urllib.parse import quote

import msgspec

from ..client.bulk import FIELDS, FindOptions, page_query
from ..client.client import Client, as_added, read_request
from ..client.counts import Stats
from ..client.diagnostics import Health
from ..client.events import Events
from ..client.paces import CODE
from ..client.queues import MOST_PER_PAGE, QueuePage
from ..client.why import Why
from ..client.workers.recovery import Recovered
from ..core.filters import JobFilter, filter_text
from ..core.job import Job, NewJob, Priority
from ..core.request import LONGEST_TIMEOUT, EnqueueOptions, JobOptions
from ..core.spans import span, span_ms
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..errors import Invalid, JobNotFound, KeyReused, StoreError, UnknownJobType, WrongState
from ..handlers.registry import Registry
from ..store.jobs import Added, Page, Queue
from ..store.store import Store
from ..system import traces
from ..system.ids import new_id
from ..wire.jobs import JobView, PageView, ReceiptView, read_job, read_page
from ..wire.queues import (
    QueuesView,
    QueueView,
    RecoveryView,
    StatsView,
    WorkersView,
    read_queue,
    read_recovered,
    read_stats,
    read_worker,
)
from ..wire.requests import LONGEST_WAIT, MOST_JOBS, JobChange, JobRequest, PauseRequest
from .connection import ServiceAnswer, ServiceConnection
from .events import RemoteEvents
from .store import NotOffered, RemoteStore, SomeKeys

T = TypeVar("T")

JOBS, QUEUES = "/api/v1/jobs", "/api/v1/queues"

_HERE = frozenset({"store", "registry", "use", "make", "make_many", "result"})  # these ask a service only by other verbs


def remote_client(store: RemoteStore, registry: Registry, *, new_id: Callable[[], str] = new_id) -> Client:
    """Return a client whose verbs ask a service. They take, return and raise the same as those on a database.

    `enqueue` and `enqueue_many` may be sent twice: each job has an idempotency key, the caller's or one made here. A verb
    that no part below has raises `NotOverHttp` by its own name, even where the service has a route for it. The service
    decides what only it can know: which webhook URLs, queues, types and timeouts are allowed, and the defaults of types
    without a handler in this process.
    """
    client = Client(cast(Store, store), registry, new_id=new_id, longest_timeout=LONGEST_TIMEOUT)
    jobs, queues = RemoteJobs(store.connection, client, new_id), RemoteQueues(store.connection)
    parts = (jobs, queues, Events(partial(RemoteEvents, store.connection)))
    _refuse_all_but(client, {name for part in parts for name in dir(part)} | _HERE)
    for part in parts:
        client.use(part)
    return client


def _refuse_all_but(client: Client, offered: Set[str]) -> None:
    """Have the other verbs of a client refuse by their own names, and not by those of the store that they would ask."""
    for name in dir(client):
        if not name.startswith("_") and name not in offered:
            setattr(client, name, SomeKeys(name) if name == "keys" else NotOffered(name))


class RemoteJobs:
    """The verbs on single jobs, with the guarantees of those of `Client`: a docstring here says what differs. The client
    makes the jobs, as it does for a database."""

    def __init__(self, connection: ServiceConnection, client: Client, new_id: Callable[[], str]) -> None:
        self._ask, self._client, self._new_key = connection.ask, client, new_id
        self._traces = traces.configured()

    async def enqueue(self, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        _refuse_within(options.pop("within", None))
        of_job: JobOptions = options
        made = self._client.make(type, payload, **of_job)
        request = self._request(made, of_job)
        facts = {"type": type, "key": request.idempotency_key}
        answer = await self._post(JOBS, _encode(request), [made], facts)
        return _added(answer.body, made)

    async def enqueue_many(
        self, requests: Iterable[Any], *, within: Any = None, spread: timedelta | str | None = None
    ) -> list[Job]:
        """Store many jobs, all or none: at most 1000 in one call over HTTP."""
        _refuse_within(within)
        asked = list(requests)
        if len(asked) > MOST_JOBS:
            raise Invalid("jobs", f"at most {MOST_JOBS:,} jobs may be added in one call over HTTP")
        made = self._client.make_many(asked, spread=spread)
        if not made:
            return []
        spreads: Mapping[str, Any] = {} if spread is None else {"delay": spread}
        read = [read_request(request, n) for n, request in enumerate(asked)]
        given = [None if isinstance(one, NewJob) else {**one.options, **spreads} for one in read]
        batch = [self._request(job, options) for job, options in zip(made, given, strict=True)]
        body = b'{"jobs":[' + b",".join(map(_encode, batch)) + b"]}"
        try:
            answer = await self._post(f"{JOBS}/batch", body, made)
        except KeyReused as reused:
            reused.key = batch[reused.job or 0].idempotency_key or ""
            raise
        except UnknownJobType as unknown:
            unknown.type = made[unknown.job or 0].type
            raise
        sent = answer.decode(_Batch).jobs
        return [_added(bytes(one), job) for one, job in zip(sent, made, strict=True)]

    async def _post(
        self, path: str, body: bytes, jobs: Sequence[NewJob], facts: Mapping[str, Any] | None = None
    ) -> ServiceAnswer:
        """Send jobs. The span of the call, if there are traces, is the parent of what the service and its workers do."""
        if self._traces is None:
            return await self._ask("POST", path, body, facts=facts)
        with self._traces.adding([job.queue for job in jobs], [None for _ in jobs]) as traceparent:
            headers = {} if traceparent is None else {"traceparent": traceparent}
            return await self._ask("POST", path, body, facts=facts, headers=headers)

    async def get(self, id: str) -> Job:
        return read_job((await self._ask("GET", _job(id), facts={"id": id})).decode(JobView))

    async def find(self, filter: JobFilter | str | None = None, **options: Unpack[FindOptions]) -> Page:
        """Return a page of jobs, as on a database. The service limits its size and the time of the search itself."""
        if options.get("older_than") is not None:
            raise Invalid("older_than", "is not available over HTTP; search by created, due or ended")
        page = page_query(filter, options)
        given = {"search": filter_text(page.filter), "sort": page.sort.value, "limit": str(page.limit), "cursor": page.after}
        fields = [("fields", field) for field in options.get("fields", FIELDS)]
        query = fields + [(name, value) for name, value in given.items() if value]
        return read_page((await self._ask("GET", JOBS, query=query)).decode(PageView))

    @overload
    async def wait(self, job: Job[T], timeout: timedelta | str | None = None) -> Job[T]: ...
    @overload
    async def wait(self, job: str, timeout: timedelta | str | None = None) -> Job: ...
    async def wait(self, job: Job | str, timeout: timedelta | str | None = None) -> Job:
        id = job if isinstance(job, str) else job.id
        now = asyncio.get_running_loop().time
        until = None if timeout is None else now() + span(timeout, "timeout").total_seconds()
        while True:
            left = LONGEST_WAIT if until is None else timedelta(seconds=max(until - now(), 0.0))
            asked = min(left, LONGEST_WAIT)
            answer = await self._ask(
                *("GET", f"{_job(id)}/wait"),
                query=[("timeout", str(span_ms(asked)))],
                facts={"id": id},
                wait=asked.total_seconds(),
            )
            found = read_job(answer.decode(JobView))
            if found.status.ended or (until is not None and now() >= until):
                return found

    async def cancel(self, id: str) -> Status:
        try:
            answer = await self._ask("POST", f"{_job(id)}/cancel", facts={"id": id, "verb": "cancel"})
        except WrongState as refused:
            if refused.repeated and refused.status == Status.CANCELLED.name:  # by the try whose answer was lost
                return Status.CANCELLED
            raise
        return Status.CANCELLED if answer.status == 200 else Status.PROCESSING

    async def retry(self, id: str) -> Job:
        """Run a failed or cancelled job again. If the answer is lost, this raises `StoreError`: a second try would be
        refused whether or not the first was carried out."""
        answer = await self._ask("POST", f"{_job(id)}/retry", facts={"id": id, "verb": "retry"}, repeat=False)
        return read_job(answer.decode(JobView))

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
        if revisions is not None:
            raise Invalid("revisions", "is not available over HTTP")
        change = JobChange(
            priority=None if priority is None else str(priority),
            scheduled_at=at,
            delay=None if delay is None else span_ms(span(delay, "delay")),
            tags=None if tags is None else list(tags),
        )
        answer = await self._ask("PATCH", _job(id), _encode(change), facts={"id": id, "verb": "reschedule"})
        return read_job(answer.decode(JobView))

    async def delete(self, id: str) -> None:
        try:
            await self._ask("DELETE", _job(id), facts={"id": id, "verb": "delete"})
        except JobNotFound as gone:
            if not gone.repeated:  # else the try whose answer was lost has deleted it
                raise

    def check_webhook_url(self, url: str) -> None:
        """Leave the decision to the service, whose policy may be another one."""

    async def why(self, id: str) -> Why:
        """Say why a job waits, or what became of it."""
        return (await self._ask("GET", f"{_job(id)}/why", facts={"id": id})).decode(Why)

    def _request(self, job: NewJob, options: Mapping[str, Any] | None) -> JobRequest:
        """Return the request for a job: what the caller and the handler of its type say. Without options, all of the job."""
        handler = self._client.registry.get(job.type)
        said = _SAID if options is None else {name for name, value in options.items() if value is not None}
        if handler is not None and options is not None:
            said = {name for name, value in handler.with_defaults(cast(JobOptions, options)).items() if value is not None}
        key = self._new_key() if job.key is None else job.key.key
        return JobRequest.of(job, said, key=key)


class RemoteQueues:
    """The verbs on queues, workers and statistics."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._ask = connection.ask

    async def queues(self) -> list[Queue]:
        """Return all queues, by name."""
        page = await self.queues_page()
        found = page.queues
        while page.next is not None:
            page = await self.queues_page(after=page.next)
            found += page.queues
        return found

    async def queues_page(
        self, *, after: str | None = None, limit: int = MOST_PER_PAGE, within: timedelta | None = None
    ) -> QueuePage:
        """Return a page of queues, by name. Pass the `next` of a page as `after` to get the following one."""
        query = [("limit", str(limit)), *([] if after is None else [("cursor", after)])]
        view = (await self._ask("GET", QUEUES, query=query)).decode(QueuesView)
        return QueuePage([read_queue(queue) for queue in view.queues], view.next_cursor)

    async def queue(self, queue: str) -> Queue:
        """Return one queue with its counts. `QueueNotFound` if no job was ever enqueued there and it was never changed."""
        return read_queue((await self._ask("GET", _queue(queue), facts={"name": queue})).decode(QueueView))

    async def pause(self, queue: str, reason: str | None = None, *, by: str = CODE) -> Queue:
        """Hand out no jobs of this queue until it is resumed. The service records the name of the API key as `by`."""
        answer = await self._ask("POST", f"{_queue(queue)}/pause", _encode(PauseRequest(reason)))
        return read_queue(answer.decode(QueueView))

    async def resume(self, queue: str) -> Queue:
        """Hand out jobs of this queue again. `QueueNotFound` if no queue has this name."""
        return read_queue((await self._ask("POST", f"{_queue(queue)}/resume", facts={"name": queue})).decode(QueueView))

    async def stats(self, *, fresh: bool = False) -> Stats:
        """Return how many jobs there are in each state."""
        answer = await self._ask("GET", "/api/v1/stats", query=[("fresh", "true")] if fresh else [])
        return read_stats(answer.decode(StatsView))

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers that are alive."""
        return [read_worker(one) for one in (await self._ask("GET", "/api/v1/workers")).decode(WorkersView).workers]

    async def health(self) -> Health:
        """Return whether jobs are being run; `StoreError` if the service cannot write to its database."""
        return (await self._ask("GET", "/health/ready")).decode(Health)

    async def recover(self) -> list[Recovered]:
        """Settle every lapsed lease, as the next claim of any worker would. Runs no job."""
        view = (await self._ask("POST", "/api/v1/recover")).decode(RecoveryView)
        return [read_recovered(one) for one in view.recovered]


class _Batch(msgspec.Struct, frozen=True):
    jobs: list[msgspec.Raw]


_SAID = frozenset(JobOptions.__optional_keys__)


def _added(body: bytes, job: NewJob) -> Job:
    """Return the job that was added. A key that may only submit gets a receipt, to which the request adds the rest."""
    try:
        return read_job(msgspec.json.decode(body, type=JobView))
    except msgspec.DecodeError:
        pass
    try:
        receipt = msgspec.json.decode(body, type=ReceiptView)
    except msgspec.DecodeError as problem:
        raise StoreError(f"the answer of the service cannot be read; is it a demora service? {problem}") from None
    times = datetime.fromisoformat(receipt.created_at), datetime.fromisoformat(receipt.scheduled_at)
    added = as_added(job, Added(receipt.id, *times))
    return msgspec.structs.replace(added, status=Status[receipt.status], due_at=datetime.fromisoformat(receipt.due_at))


def _refuse_within(within: Any) -> None:
    if within is not None:
        raise Invalid(
            "within", "a service cannot add jobs in a transaction of yours: enqueue without it once you have committed"
        )


def _encode(request: JobRequest | JobChange | PauseRequest) -> bytes:
    """Return a request as JSON without the fields that are not given."""
    values = zip(request.__struct_encode_fields__, msgspec.structs.astuple(request), strict=True)
    return msgspec.json.encode({name: value for name, value in values if value is not None})


def _job(id: str) -> str:
    return f"{JOBS}/{quote(id, safe='')}"


def _queue(name: str) -> str:
    return f"{QUEUES}/{quote(name, safe='')}"
