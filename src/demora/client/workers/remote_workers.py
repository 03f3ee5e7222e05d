"""Remote workers: programs in any language that run jobs over HTTP, by the same verbs of the port as our own workers.

The leases and the workers are in the database, so any process of the service can answer any request of a worker, also after
a restart. What a process remembers of them only saves work and narrows races.
"""

import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from weakref import WeakValueDictionary

import msgspec

from ...core.access import ApiKey, check_names
from ...core.action import OWN_TYPES
from ...core.request import check_name, check_queue, check_type
from ...core.spans import ZERO
from ...core.states import Status
from ...core.verdict import HandedBack, Outcome, decide, recorded_status
from ...core.workers import HEARTBEAT_EVERY, UNWIND, WorkerRecord
from ...errors import Invalid, WorkerNotFound
from ...handlers.registry import Registry, allowed_time
from ...store.jobs import (
    Claimed,
    ClaimedJob,
    ClaimRequest,
    LapsedJob,
    Lease,
    LeasedJob,
    LeaseStatus,
    Report,
    Settlement,
    hand_back,
    lapse,
)
from ...store.store import Store
from ...system import notices
from .waiting_claims import ClaimSubscription, WaitingClaims

MOST_TYPES, MOST_QUEUES, MOST_SLOTS = 1000, 1000, 10_000
MOST_ANSWER = 16 * 1024 * 1024  # bytes of payloads in the answer to one claim
LARGEST = 1024 * 1024  # bytes of a payload, until the first answer shows how large those of a worker are
BEAT_EVERY = HEARTBEAT_EVERY.total_seconds()  # between two heartbeats that a worker's calls make
MOST_KNOWN = 10_000  # workers that a process remembers
_WITHOUT_KEY = ""  # stands for the id of a key where none is needed


class HandedJob(msgspec.Struct, frozen=True):
    """A job for a remote worker. Its lease holds for at least `lease` from when the request arrived. `claim` stands for the
    request that it answers."""

    job: ClaimedJob
    timeout: timedelta
    lease: timedelta
    claim: object = None


class Reported(msgspec.Struct, frozen=True):
    """What a worker says about a job that it runs."""

    lease: Lease
    progress: float | None = None
    message: str | None = None
    log: tuple[str, ...] = ()


class RemoteWorker(msgspec.Struct, frozen=True):
    """A registered remote worker."""

    id: str
    name: str
    slots: int
    queues: tuple[str, ...]
    types: tuple[str, ...]

    def record(self) -> WorkerRecord:
        return WorkerRecord(self.id, self.name, 0, self.slots, self.queues, self.types)


class _Claim:
    """A claim under way. `removed` says that its worker was deregistered meanwhile."""

    def __init__(self, worker: RemoteWorker, limit: int, arrived: float, id: str | None, ended: asyncio.Event) -> None:
        self.worker, self.limit, self.arrived, self.id, self.ended = worker, limit, arrived, id, ended
        self.removed = False


class RemoteWorkers:
    """The verbs of remote workers on one store. `lease` is how long other workers wait before they take over a job of a dead
    one. No job may run for longer than `longest`."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        lease: timedelta,
        longest: timedelta,
        chance: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._store, self._registry, self.lease, self._longest = store, registry, lease, longest
        self._chance, self._monotonic, self._token = chance, monotonic, token
        self._known: dict[str, RemoteWorker] = {}
        self._beats: dict[str, float] = {}
        self._payloads: dict[str, int] = {}  # the largest payload in the last answer to a worker
        self._waiting = WaitingClaims(store)
        self._claims: dict[str, list[_Claim]] = {}  # under way, by the id of their worker
        self._answered: WeakValueDictionary[Lease, _Claim] = WeakValueDictionary()  # the last claim that got a job
        self._taken_back: set[Lease] = set()  # at this moment
        self._removed: dict[str, None] = {}  # the last workers that were removed; an id is never given twice

    async def register(
        self, name: str, types: Iterable[str], *, slots: int, queues: Iterable[str] | None = None, key: ApiKey | None = None
    ) -> RemoteWorker:
        """Register a worker that runs jobs of these types, and return it with a new id, which works only with this key.

        `queues` None means all queues. `NotAllowedForKey` if the key is bound to other queues or types.
        """
        if not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
            raise Invalid("slots", f"must be a whole number from 1 to {MOST_SLOTS}")
        served = (
            None if queues is None else _several("queues", [check_queue(queue, "queues") for queue in queues], MOST_QUEUES)
        )
        known = _several("types", [_own_type(type) for type in types], MOST_TYPES)
        worker = RemoteWorker(_worker_id(check_name(name), key, self._token()), name, slots, served or (), known)
        self.check_allowed(worker, key)
        await self._beat(worker)
        self._remember(worker)
        return worker

    def check_allowed(self, worker: RemoteWorker, key: ApiKey | None) -> None:
        """Raise `NotAllowedForKey` if the key is bound to other queues or types, also since the worker was registered."""
        if key is not None:
            check_names(key.limits, worker.queues or None, worker.types)

    async def worker(self, id: str, key: ApiKey | None) -> RemoteWorker:
        """Return a registered worker, and record that it is alive. `WorkerNotFound` if this key did not register it.

        A worker without a call for a day is forgotten.
        """
        if not _belongs(id, key):
            raise WorkerNotFound(id)
        if id not in self._removed:
            worker = self._known.get(id) or self._remember(await self._look(id))
            await self._keep_alive(worker)
            if id not in self._removed:
                return worker
            await self._store.retire(id)  # the heartbeat may have come after the removal
        raise WorkerNotFound(id)

    async def claim(
        self, worker: RemoteWorker, limit: int, *, wait: timedelta, ended: asyncio.Event, claim_id: str | None = None
    ) -> list[HandedJob]:
        """Lease up to `limit` jobs of the worker's types to it. Without a ready job, wait until there is one or the time is
        up. When `ended` is set or the worker is removed, return at once, without a job.

        The same `claim_id` returns the same jobs while their leases hold. What would exceed 16 MiB of payloads is handed
        back; then the run is not counted.
        """
        claim = _Claim(worker, limit, self._monotonic(), claim_id, ended)
        self._claims.setdefault(worker.id, []).append(claim)
        try:
            jobs, held = await self._wait_for_jobs(claim, wait)
        finally:
            self._claims[worker.id].remove(claim)
            if not self._claims[worker.id]:
                del self._claims[worker.id]
        if claim.removed:  # perhaps after the removal looked for jobs of the worker, and with a heartbeat under way
            await self.hand_back(jobs)
            await self._store.retire(worker.id)
            return []
        fitting = await self._fitting(worker, jobs) if jobs else []
        return [HandedJob(job, self._timeout(job.type, job.timeout), held, claim) for job in fitting]

    async def renew(self, worker: RemoteWorker, reports: Sequence[Reported]) -> LeaseStatus:
        """Extend the leases of this worker, and record its reports. A lease that another worker has, that has lapsed, or
        whose job has run for longer than its timeout and 5 s, is lost and not extended."""
        held = await self._held(worker, [one.lease for one in reports])
        running = [one for one in reports if (job := held.get(one.lease)) is not None and not self._overdue(job)]
        status = LeaseStatus(frozenset(), frozenset())
        if running:
            status = await self._store.renew([_report(one, held[one.lease]) for one in running], lease=self.lease)
        missing = {one.lease for one in reports} - {one.lease for one in running}
        return LeaseStatus(status.lost | missing, status.cancel_requested)

    async def settle(self, worker: RemoteWorker, outcomes: Sequence[tuple[Lease, Outcome]]) -> list[Status | None]:
        """Record what became of jobs of this worker, and return the new status of each. For a run that was settled before,
        return the status that it has on record; None where the lease went elsewhere."""
        held = await self._held(worker, [lease for lease, _ in outcomes])
        ours = [(held[lease], outcome) for lease, outcome in outcomes if lease in held]
        answers = await self._store.settle([self._settlement(job, outcome) for job, outcome in ours]) if ours else []
        recorded = {job.lease: status for (job, _), status in zip(ours, answers, strict=True) if status is not None}
        return [
            recorded[lease] if lease in recorded else await self._on_record(worker, lease, outcome)
            for lease, outcome in outcomes
        ]

    async def hand_back(self, jobs: Iterable[ClaimedJob]) -> None:
        """Return jobs that were claimed and never handed out. The claims are not counted as attempts."""
        back = [hand_back(job) for job in jobs]
        if back:
            await self._store.settle(back)

    async def take_back(self, handed: Iterable[HandedJob]) -> None:
        """Hand back jobs whose answer was lost, except those that a repetition of the claim got meanwhile: the worker runs
        them. Only repetitions in this process are known."""
        lost = [one.job for one in handed if self._answered.get(one.job.lease) is one.claim]
        leases = {job.lease for job in lost}
        self._taken_back |= leases
        try:
            await self.hand_back(lost)
        finally:
            self._taken_back -= leases

    async def remove(self, worker: RemoteWorker) -> None:
        """Hand back the jobs that a worker still holds, and forget the worker. Its claims that wait in this process end, and
        those that arrive during the removal find no worker."""
        for claim in self._claims.get(worker.id, ()):
            claim.removed = True
            claim.ended.set()
        self._removed[worker.id] = None
        if len(self._removed) > MOST_KNOWN:
            del self._removed[next(iter(self._removed))]
        held = await self._store.leased(worker.id)
        if held:
            await self._store.settle([self._settlement(job, HandedBack()) for job in held])
        for remembered in (self._known, self._beats, self._payloads):
            remembered.pop(worker.id, None)
        await self._store.retire(worker.id)

    # Claiming

    async def _wait_for_jobs(self, claim: "_Claim", wait: timedelta) -> tuple[list[ClaimedJob], timedelta]:
        """Return the jobs of a claim, and for how long from its arrival their leases hold."""
        worker, until = claim.worker, claim.arrived + wait.total_seconds()
        with self._waiting.claiming((worker.queues, worker.types)) as subscription:
            while not claim.ended.is_set():
                subscription.clear()
                began = self._monotonic()
                claimed, full = await self._claim(claim)
                if full:
                    subscription.wake_others()
                if claimed.jobs:
                    return claimed.jobs, self.lease + timedelta(seconds=began - claim.arrived)
                if claimed.next_in is not None:
                    subscription.next_in(claimed.next_in)
                if (left := until - self._monotonic()) <= 0:
                    break
                if not claimed.lapsed:
                    await self._sleep(worker, subscription, claim.ended, left)
        return [], ZERO

    async def _claim(self, claim: "_Claim") -> tuple[Claimed, bool]:
        """Return what the store leased, and whether it may have more."""
        worker, claim_id = claim.worker, claim.id
        if claim_id is not None and (again := await self._claimed_before(claim, claim_id)):
            return Claimed(again, [], None), False
        room = MOST_ANSWER // max(self._payloads.get(worker.id, LARGEST), 1)
        most = max(1, min(claim.limit, room))
        queues, types = worker.queues or None, frozenset(worker.types)
        request = ClaimRequest(worker.id, most, lease=self.lease, queues=queues, types=types, claim_id=claim_id)
        claimed = await self._store.claim(request)
        self._answered.update((job.lease, claim) for job in claimed.jobs)
        if claimed.lapsed:
            await self._store.settle([self._lapse(job) for job in claimed.lapsed])
        return claimed, len(claimed.jobs) == most

    async def _claimed_before(self, claim: "_Claim", claim_id: str) -> list[ClaimedJob]:
        """Return the jobs of an earlier claim whose answer was lost, with their leases extended."""
        found = await self._store.claimed(claim.worker.id, claim_id)
        jobs = [job for job in found if job.lease not in self._taken_back]
        if not jobs:
            return []
        self._answered.update((job.lease, claim) for job in jobs)  # before they are renewed: now none is taken back
        lost = (await self._store.renew([Report(job.lease, ZERO) for job in jobs], lease=self.lease)).lost
        return [job for job in jobs if job.lease not in lost]

    def _lapse(self, lapsed: LapsedJob) -> Settlement:
        settlement = lapse(lapsed, self._chance(), self._registry.retry_state)
        notices.job_lapsed(lapsed.lease.id, lapsed.type, lapsed.worker_id, settlement.verdict.status)
        return settlement

    async def _fitting(self, worker: RemoteWorker, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """Return the first jobs whose payloads fit into an answer, at least one, and hand back the others."""
        fitting, size = [jobs[0]], len(jobs[0].payload)
        for job in jobs[1:]:
            size += len(job.payload)
            if size > MOST_ANSWER:
                break
            fitting.append(job)
        self._payloads[worker.id] = max(len(job.payload) for job in jobs)
        await self.hand_back(jobs[len(fitting) :])
        return fitting

    async def _sleep(
        self, worker: RemoteWorker, subscription: ClaimSubscription, ended: asyncio.Event, seconds: float
    ) -> None:
        """Wait for a ready job, the end or the time, and record meanwhile that the worker is alive."""
        ending = asyncio.ensure_future(ended.wait())
        until = self._monotonic() + seconds
        try:
            while (left := until - self._monotonic()) > 0:
                ready = asyncio.ensure_future(subscription.wait(min(left, BEAT_EVERY)))
                try:
                    await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
                    if ending.done() or ready.result():
                        return
                finally:
                    ready.cancel()
                await self._keep_alive(worker)
        finally:
            ending.cancel()

    # Held jobs

    async def _held(self, worker: RemoteWorker, leases: Sequence[Lease]) -> Mapping[Lease, LeasedJob]:
        return {job.lease: job for job in await self._store.leased(worker.id, leases)} if leases else {}

    def _timeout(self, type: str, asked: timedelta | None) -> timedelta:
        return allowed_time(self._registry.get(type), asked, self._longest)

    def _overdue(self, job: LeasedJob) -> bool:
        return job.leased_for > self._timeout(job.type, job.timeout) + UNWIND

    def _settlement(self, job: LeasedJob, outcome: Outcome) -> Settlement:
        state = self._registry.retry_state(job.type, job.retry_state)
        return Settlement(Report(job.lease, job.leased_for), outcome, decide(outcome, state, self._chance()))

    async def _on_record(self, worker: RemoteWorker, lease: Lease, outcome: Outcome) -> Status | None:
        job = await self._store.get(lease.id)
        return None if job is None else recorded_status(job, lease.token, worker.id, outcome)

    # Registered workers

    async def _look(self, id: str) -> RemoteWorker:
        for found in await self._store.workers():
            if found.id == id:
                return RemoteWorker(id, found.host, found.slots, found.queues, found.types)
        raise WorkerNotFound(id)

    def _remember(self, worker: RemoteWorker) -> RemoteWorker:
        if len(self._known) >= MOST_KNOWN:
            for remembered in (self._known, self._beats, self._payloads):
                remembered.clear()
        self._known[worker.id] = worker
        return worker

    async def _keep_alive(self, worker: RemoteWorker) -> None:
        if self._monotonic() - self._beats.get(worker.id, -BEAT_EVERY) >= BEAT_EVERY:
            await self._beat(worker)

    async def _beat(self, worker: RemoteWorker) -> None:
        self._beats[worker.id] = self._monotonic()
        await self._store.heartbeat(worker.record())


def _worker_id(name: str, key: ApiKey | None, own: str) -> str:
    """Return a new worker id. Its last part proves which key it belongs to, without naming the key."""
    return f"{name}-{own}-{_proof(own, key)}"


def _belongs(id: str, key: ApiKey | None) -> bool:
    rest, _, proof = id.rpartition("-")
    return proof == _proof(rest.rpartition("-")[2], key)


def _proof(own: str, key: ApiKey | None) -> str:
    text = f"{own} {_WITHOUT_KEY if key is None else key.id}"
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _own_type(type: str) -> str:
    try:
        check_type(type)
    except Invalid as problem:
        raise Invalid("types", problem.reason) from None
    if type in OWN_TYPES:
        raise Invalid("types", f"{type} is run by the workers of demora itself")
    return type


def _several(field: str, names: Sequence[str], most: int) -> tuple[str, ...]:
    if not 1 <= len(names) <= most:
        raise Invalid(field, f"must be 1 to {most} names")
    return tuple(dict.fromkeys(names))


def _report(reported: Reported, job: LeasedJob) -> Report:
    lines = tuple((job.leased_for, line) for line in reported.log)
    return Report(reported.lease, job.leased_for, reported.progress, reported.message, lines)
