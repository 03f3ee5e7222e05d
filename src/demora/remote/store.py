"""The store of an application that uses a service over HTTP: a connection in the place of a database.

It has the verbs that a worker needs, by the worker protocol, so that our own worker runs unchanged over HTTP.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from ..core.action import OWN_TYPES
from ..core.request import MOST_NAME
from ..core.spans import ZERO, span_ms
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..errors import (
    DemoraError,
    Invalid,
    NotAllowedForKey,
    NotOverHttp,
    ServiceRefused,
    StoreBusy,
    StoreClosed,
    StoreError,
    WorkerNotFound,
    WorkerRefused,
)
from ..handlers.builtin import BUILT_IN, HTTP_REQUEST
from ..store.api_keys import KeyLookup
from ..store.jobs import (
    MOST_LINES,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Lease,
    LeaseStatus,
    Report,
    Settlement,
    Topic,
    hand_back,
)
from ..store.store import Store
from ..system import notices
from ..system.ids import new_id
from ..wire.worker_protocol import (
    LONGEST_POLL,
    MOST_CLAIMED,
    MOST_RENEWED,
    ClaimBody,
    ClaimedView,
    ErrorBody,
    OutcomeBody,
    RegisteredView,
    RenewedView,
    RenewRequest,
    ReportBody,
    SettledView,
    SettleRequest,
    WorkerRequest,
    outcome_body,
    read_handed_job,
)
from .connection import ServiceAnswer, ServiceConnection

WORKERS = "/api/v1/workers"
SOON = timedelta(milliseconds=20)  # until a claim of a worker that is not registered yet is tried again
POLL = LONGEST_POLL - timedelta(seconds=10)  # so that a worker makes a call before it counts as dead
MOST_TEXT = 1_000_000  # characters of progress and log in one request
_BUILT_IN = frozenset({*(handler.type for handler in BUILT_IN), HTTP_REQUEST})
_NEEDED_KEY = "set DEMORA_API_KEY to a key with the scope work (demora keys create NAME --scope work)"
_OF_STORES = frozenset(name for name in vars(Store) if not name.startswith("_"))


class _Registration:
    """The worker of a process as the service knows it. All siblings of a store share it, on their threads."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.record: WorkerRecord | None = None


class RemoteStore:
    """A service in the place of a database, for one event loop. Verbs that it does not offer raise `NotOverHttp`.

    The service does the housekeeping. It also decides what becomes of a failed run: a worker says only how the run ended.
    Every error of the verbs below is a `StoreError`, after which the worker tries again, or `WorkerRefused`, after which it
    need not.
    """

    def __init__(self, connection: ServiceConnection, registration: _Registration | None = None) -> None:
        self.connection, self._worker = connection, registration or _Registration()
        self.api_keys = SomeKeys("api_keys")
        self._claim_id: str | None = None  # of a claim whose answer has not arrived
        self._ahead: list[ClaimedJob] = []  # claimed while the worker waited for a job
        self._free = 0  # jobs that the last claim had room for and did not get

    async def open(self) -> None:
        await self.connection.open()

    async def close(self) -> None:
        await self.connection.close()

    def sibling(self) -> "RemoteStore":
        return RemoteStore(self.connection.sibling(), self._worker)

    async def lease(self) -> timedelta:
        """Return how long the service leases jobs. Registers a worker for that, and removes it."""
        probe = await self._register(WorkerRecord("probe", "", 0, 1, types=("demora.probe",)))
        await self._request("DELETE", _path(probe.worker_id))
        return timedelta(milliseconds=probe.lease)

    # The verbs of a worker

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim jobs of the registered queues and types. The service leases them for its own span, and settles lapses."""
        if self._worker.id is None:
            return Claimed([], [], SOON)
        if self._ahead:
            jobs, self._ahead = self._ahead[: request.limit], self._ahead[request.limit :]
        else:
            jobs = await self._poll(request.limit, ZERO)
        self._free = request.limit - len(jobs)
        return Claimed(jobs, [], None)

    async def renew(self, reports: Sequence[Report], *, lease: timedelta) -> LeaseStatus:
        """Extend the leases, and pass on the reports. A report that the service refuses is dropped: its lease is extended
        all the same."""
        lost, cancelled = set[Lease](), set[Lease]()
        for bodies in _requests(reports):
            answer = await self._renew(bodies)
            lost |= {Lease(one.id, one.token) for one in answer.lost}
            cancelled |= {Lease(one.id, one.token) for one in answer.cancelled}
        return LeaseStatus(frozenset(lost), frozenset(cancelled))

    async def lease_status(self, leases: Sequence[Lease]) -> LeaseStatus:
        """Renew the leases: the protocol has no other way to hear of lost ones and of cancels."""
        return await self.renew([Report(lease, ZERO) for lease in leases], lease=ZERO)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        """Settle the jobs. An outcome that the service refuses, such as a result that it finds too large, fails its job. Of
        several, it raises `Invalid` and settles none."""
        if not settlements:
            return []
        told = [one.report for one in settlements if one.report.log or one.report.progress is not None]
        if told:
            await self.renew(told, lease=ZERO)
        try:
            answer = await self._ask("settle", SettleRequest([outcome_body(one) for one in settlements]))
        except Invalid as problem:
            if len(settlements) > 1:
                raise
            lease, said = settlements[0].report.lease, f"the service refused its outcome: {problem}"
            error = ErrorBody(type(problem).__name__, said, permanent=True)
            answer = await self._ask("settle", SettleRequest([OutcomeBody(lease.id, lease.token, "failed", error=error)]))
        return [None if one.status is None else Status[one.status] for one in answer.decode(SettledView).jobs]

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Register the worker at its first heartbeat, and when the service has forgotten it."""
        self._worker.record = worker
        if self._worker.id is None:
            self._worker.id = (await self._register(worker)).worker_id
        else:
            await self._ask("renew", RenewRequest([]))

    async def retire(self, worker_id: str) -> None:
        id, self._worker.id = self._worker.id, None
        if id is not None:
            with contextlib.suppress(WorkerNotFound):
                await self._request("DELETE", _path(id))

    async def workers(self) -> list[WorkerRecord]:
        """Return none: a key that may only work cannot see other workers."""
        return []

    async def housekeep(self, *args: Any, **options: Any) -> Any:
        """End the loop of a scheduler in this process: the service does the housekeeping."""
        raise StoreClosed

    @contextmanager
    def subscribe(self, topic: Topic) -> "Iterator[_Polling]":
        yield _Polling(self, polls=topic is Topic.READY)

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_STORES:
            raise AttributeError(name)
        return NotOffered(name)

    # Claims

    def room(self) -> int:
        """Return how many jobs a waiting worker can take."""
        return self._free if self._worker.id is not None else 0

    async def poll(self, wait: timedelta) -> bool:
        """Claim jobs for the next `claim` as soon as there are some. Returns whether there are."""
        limit, self._free = self._free, 0
        self._ahead += await self._poll(limit, wait)
        return bool(self._ahead)

    async def hand_back(self) -> None:
        """Return the jobs to the service that were claimed for a worker that has no room for them. If that fails, their
        leases lapse."""
        ahead, self._ahead = self._ahead, []
        if ahead:
            with contextlib.suppress(StoreError):
                await self.settle([hand_back(job) for job in ahead])

    async def _poll(self, limit: int, wait: timedelta) -> list[ClaimedJob]:
        self._claim_id = self._claim_id or new_id()
        body = ClaimBody(min(limit, MOST_CLAIMED), span_ms(wait), self._claim_id)
        answer = await self._ask("claim", body, wait=wait)
        self._claim_id = None
        return [read_handed_job(view) for view in answer.decode(ClaimedView).jobs]

    # Requests

    async def _renew(self, bodies: Sequence[ReportBody]) -> RenewedView:
        try:
            answer = await self._ask("renew", RenewRequest(list(bodies)))
        except Invalid as problem:
            notices.report_refused(problem)
            answer = await self._ask("renew", RenewRequest([ReportBody(one.id, one.token) for one in bodies]))
        return answer.decode(RenewedView)

    async def _ask(self, verb: str, body: msgspec.Struct, *, wait: timedelta = ZERO) -> ServiceAnswer:
        id = self._worker.id
        if id is None:
            raise StoreError("the worker is not registered with the service yet")
        try:
            return await self._request("POST", f"{_path(id)}/{verb}", body, wait=wait)
        except WorkerNotFound as problem:
            await self._register_again(id)
            raise StoreError("the service had forgotten this worker, which is registered anew") from problem

    async def _register_again(self, id: str) -> None:
        record = self._worker.record
        if record is not None and self._worker.id == id:
            self._worker.id = (await self._register(record)).worker_id

    async def _register(self, worker: WorkerRecord) -> RegisteredView:
        """Register the worker, without the built-in types if its key does not allow all types."""
        types = [type for type in worker.types if type not in OWN_TYPES]
        own = [type for type in types if type not in _BUILT_IN]
        request = WorkerRequest(worker.id[:MOST_NAME], types, max(worker.slots, 1), list(worker.queues) or None)
        try:
            answer = await self._request("POST", WORKERS, request)
        except WorkerRefused as problem:
            if not (isinstance(problem.__cause__, NotAllowedForKey) and problem.__cause__.field == "types"):
                raise
            if not own or own == types:
                raise
            answer = await self._request("POST", WORKERS, msgspec.structs.replace(request, types=own))
            notices.builtins_off([type for type in types if type in _BUILT_IN], "the API key does not allow them")
        return answer.decode(RegisteredView)

    async def _request(
        self, method: str, path: str, body: msgspec.Struct | None = None, *, wait: timedelta = ZERO
    ) -> ServiceAnswer:
        """Send a request. Raises `WorkerNotFound`, `Invalid` for a report or an outcome, or an error of the store."""
        sent = None if body is None else msgspec.json.encode(body)
        try:
            return await self.connection.ask(method, path, sent, wait=wait.total_seconds())
        except (StoreError, WorkerNotFound):
            raise
        except Invalid as problem:
            if isinstance(body, RenewRequest | SettleRequest):
                raise
            raise WorkerRefused(str(problem), "change what it serves") from problem
        except DemoraError as problem:
            raise _judged(problem) from problem


class _Polling:
    """The subscription of a worker: it waits for a job by a claim that waits, and keeps what the claim gets for the next
    `claim` of the store. Other topics have no events over HTTP."""

    def __init__(self, store: RemoteStore, *, polls: bool) -> None:
        self._store, self._polls, self._woken = store, polls, asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    def clear(self) -> None:
        self._woken.clear()

    async def wait(self, timeout: float | None) -> bool:
        if self._polls:
            await self._store.hand_back()
        waits: dict[asyncio.Future[Any], Callable[[], bool]] = {asyncio.ensure_future(self._woken.wait()): lambda: True}
        if self._polls and self._store.room():
            longest = POLL if timeout is None else min(POLL, timedelta(seconds=timeout))
            polling = asyncio.ensure_future(self._store.poll(longest))
            waits[polling] = lambda: polling.exception() is not None or polling.result()
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return any(waits[one]() for one in done)
        finally:
            for one in waits:
                one.cancel()  # the service hands back what a claim that is cancelled has got
            await asyncio.wait(waits)


class NotOffered:
    """A verb or a part that a service does not offer. It refuses every call by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "NotOffered":
        return NotOffered(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotOverHttp(self._name)


class SomeKeys(NotOffered):
    """Stands for the API keys of a service. A worker over HTTP assumes that the service has some."""

    async def find(self, id: str) -> KeyLookup:
        return KeyLookup(None, any=True, now=datetime.now(UTC))


def _judged(refusal: DemoraError) -> StoreError:
    """Return the error of the store that a refusal means to a worker: one that passes, or one that needs a person."""
    if isinstance(refusal, NotAllowedForKey):
        names = "--queues names those that it serves" if refusal.field == "queues" else "leave its handler out"
        return WorkerRefused(str(refusal), f"{names}, or change the key (demora keys limit)")
    status = refusal.status if isinstance(refusal, ServiceRefused) else 429
    if status == 429 or status >= 500:
        return StoreBusy(str(refusal))
    return WorkerRefused(str(refusal), _NEEDED_KEY if status in (401, 403) else "does the URL name a demora service?")


def _requests(reports: Sequence[Report]) -> Iterator[list[ReportBody]]:
    """Return the reports in requests that the service accepts: with a limited number of jobs, of characters, and of lines
    of each job. A job with more lines is in a later request again."""
    parts, rest = list(reports), list[Report]()
    while parts:
        bodies, size = list[ReportBody](), 0
        for one in parts:
            lines = [line for _, line in one.log[:MOST_LINES]]
            length = len(one.message or "") + sum(map(len, lines))
            if bodies and (size + length > MOST_TEXT or len(bodies) == MOST_RENEWED):
                yield bodies
                bodies, size = [], 0
            bodies.append(ReportBody(one.lease.id, one.lease.token, one.progress, one.message, lines or None))
            size += length
            if len(one.log) > MOST_LINES:
                rest.append(msgspec.structs.replace(one, log=one.log[MOST_LINES:]))
        yield bodies
        parts, rest = rest, []


def _path(worker_id: str) -> str:
    return f"{WORKERS}/{quote(worker_id, safe='')}"
