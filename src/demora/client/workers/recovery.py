"""Recovery: settles the lapsed leases of dead workers, and all leases of a worker that an operator names."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec

from ...core.filters import JobFilter
from ...core.job import Job
from ...core.spans import ZERO
from ...core.states import Status
from ...core.verdict import Raised, RetryState, decide
from ...store.jobs import ClaimRequest, Lease, Query, Report, RetryRules, Settlement, lapse
from ...store.store import Store
from ..bulk import BATCH

_LAPSED_ONLY = ClaimRequest("recovery", 0, lease=timedelta(seconds=1))  # of 0 jobs: it only returns lapsed leases


class Recovered(msgspec.Struct, frozen=True):
    """A job that was taken from the worker that held it, and its new status."""

    id: str
    worker_id: str | None
    status: Status


class Recovery:
    """Settles the leases of dead workers. `rules` says how each type of job is retried."""

    def __init__(self, store: Store, rules: RetryRules) -> None:
        self._store, self._rules = store, rules

    async def recover(self) -> list[Recovered]:
        """Settle every lapsed lease, as the next claim of any worker would. Runs no job."""
        recovered: list[Recovered] = []
        while lapsed := (await self._store.claim(_LAPSED_ONLY)).lapsed:
            settlements = [lapse(job, random.random(), self._rules) for job in lapsed]
            settled = await self._settle(settlements, [job.worker_id for job in lapsed])
            recovered += settled
            if not settled:
                break
        return recovered

    async def give_up(self, worker_id: str) -> list[Recovered]:
        """Take all running jobs from a worker, as a failed attempt of each, and forget the worker.

        Each job is settled under the token of its lease, and only while that lease holds. If the worker is alive after all,
        it loses the jobs and can record nothing more about them. Until it learns so at its next renewal, it may still run a
        job that another worker has started.
        """
        held = [job async for job in self._running() if job.worker_id == worker_id]
        recovered = await self._settle([self._taken(job) for job in held], [worker_id] * len(held))
        await self._store.retire(worker_id)
        return recovered

    async def _running(self) -> AsyncIterator[Job]:
        query = Query(JobFilter(frozenset({Status.PROCESSING})), limit=BATCH, payload=False, result=False)
        while True:
            page = await self._store.find(query)
            for job in page.jobs:
                yield job
            if page.next is None:
                return
            query = msgspec.structs.replace(query, after=page.next)

    def _taken(self, job: Job) -> Settlement:
        state = RetryState(attempt=job.attempt, max_retries=job.max_retries, retry_delay=job.retry_delay)
        failure = Raised(f"WorkerGivenUp: the job was taken from worker {job.worker_id}")
        verdict = decide(failure, self._rules(job.type, state), random.random())
        return Settlement(Report(Lease(job.id, job.token), ZERO), failure, verdict)

    async def _settle(self, settlements: Sequence[Settlement], held_by: Sequence[str | None]) -> list[Recovered]:
        """Record the settlements, and return the jobs whose settlement was accepted."""
        statuses = await self._store.settle(settlements) if settlements else []
        return [
            Recovered(settlement.report.lease.id, worker_id, status)
            for settlement, worker_id, status in zip(settlements, held_by, statuses, strict=True)
            if status is not None
        ]
