"""What those who look after a demora may ask of the client: verbs on many jobs, and the settling of what was left behind."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ..core.job import Job
from ..core.spans import ZERO, span
from ..core.states import ENDED, RETRYABLE, WAITING, Status
from ..core.verdict import Raised, RetryState, decide
from ..errors import Invalid, StoreError
from ..handlers.registry import Registry
from ..line.port import LineAway
from ..line.reconcile import Reconcilable, Reconciliation
from ..store.diagnostics import Activity, DiagnosticsStore, JobsOverview, Probed
from ..store.jobs import Lease, Query, Report, Settlement, Store, WorkerRecord, lapse
from .bulk import BATCH, BulkResult, OnProgress, Verb, check_query, on_each

_NOBODY = "nobody"  # claims no job, so that no job is ever seen with it
_DEAD = frozenset({Status.FAILED})


class Recovered(msgspec.Struct, frozen=True):
    """A job that was taken from the worker that held it, and what it is now."""

    id: str
    worker_id: str | None
    status: Status


class Upkeep:
    """The part of the client that is about many jobs at once. Filters are those of `find`: status, queue, type, tag and
    older_than. Every verb works in small batches, so that it can be interrupted, and goes on where it is called again."""

    store: Store
    registry: Registry

    async def retry_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, told: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Run again all dead letters that match, or with `status` CANCELLED jobs; with `dry_run` only count them."""
        query = _checked("retry", RETRYABLE, _DEAD, **filters)
        return await on_each(self.store, query, verb=_unless(dry_run, self.store.retry), limit=limit, told=told)

    async def delete_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, told: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Remove all dead letters that match, or with `status` other ended jobs; with `dry_run` only count them."""
        query = _checked("delete", ENDED, _DEAD, **filters)
        return await on_each(self.store, query, verb=_unless(dry_run, self.store.remove), limit=limit, told=told)

    async def cancel_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, told: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Cancel all waiting jobs that match; with `dry_run` only count. One that is claimed meanwhile is told to end."""
        query = _checked("cancel", WAITING, WAITING, **filters)
        return await on_each(self.store, query, verb=_unless(dry_run, self.store.cancel), limit=limit, told=told)

    async def purge(
        self,
        status: Status | str,
        *,
        older_than: timedelta | str,
        queue: str | None = None,
        dry_run: bool = False,
        told: OnProgress | None = None,
    ) -> BulkResult:
        """Delete all jobs that ended with this status so long ago, and idempotency keys that expired."""
        query = _checked("purge", ENDED, ENDED, status=[status], older_than=older_than, queue=queue)
        if dry_run:
            return await on_each(self.store, query, verb=None, told=told)
        [ended], done, tally = query.statuses, BATCH, BulkResult()
        age = span(older_than, "olderThan")
        while done == BATCH:
            done = await self.store.purge(ended, older_than=age, limit=BATCH, queue=query.queue)
            tally = BulkResult(tally.matched + done, tally.done + done)
            if told is not None:
                told(tally)
        return tally

    async def overview(self) -> JobsOverview:
        """How the jobs stand, as of one moment; reads all of them."""
        return await self._diagnostics().overview()

    async def activity(self, mark: int | None = None) -> Activity:
        """How queues and workers stand, and which jobs were added since the mark of an earlier activity."""
        return await self._diagnostics().activity(mark)

    async def _probe(self) -> None:
        """Raise `StoreError` if the store takes no writes now; nothing of a store that cannot say."""
        if isinstance(self.store, Probed):
            await self.store.probe()

    async def registered_workers(self) -> list[WorkerRecord]:
        """All workers that did not say that they stop, also those that fell silent."""
        return await self.store.workers()

    async def recover(self) -> list[Recovered]:
        """Settle every lease that has lapsed, as the next claim of any worker would, and run nothing."""
        recovered: list[Recovered] = []
        while lapsed := (await self.store.claim(_NOBODY, 0, lease=timedelta(seconds=1))).lapsed:
            settlements = [lapse(job, random.random(), self.registry.standing) for job in lapsed]
            settled = await self._settle(settlements, [job.worker_id for job in lapsed])
            recovered += settled
            if not settled:
                break
        return recovered

    async def give_up(self, worker_id: str) -> list[Recovered]:
        """Take all running jobs from a worker, as a failed attempt of each, and forget the worker.

        Each is settled under the token of its lease and only while that holds. So a worker that is alive after all loses the
        jobs, is told so, and can record nothing more; but until it hears of it, it may run a job that another has begun.
        """
        held = [job async for job in self._running() if job.worker_id == worker_id]
        recovered = await self._settle([self._taken(job) for job in held], [worker_id] * len(held))
        await self.store.retire(worker_id)
        return recovered

    async def compare_line(self, *, repair: bool = False) -> Reconciliation | None:
        """How the Redis line agrees with the database, brought in step with `repair`; None if there is no line."""
        return await self.store.reconcile(repair=repair) if isinstance(self.store, Reconcilable) else None

    async def rebuild_line(self) -> int:
        """Begin the Redis line anew and fill it from the database; answers with its new number."""
        if not isinstance(self.store, Reconcilable):
            raise StoreError("there is no Redis line to rebuild: DEMORA_REDIS_URL is not set")
        try:
            return await self.store.rebuild()
        except LineAway as problem:
            raise StoreError(
                f"the Redis line cannot be rebuilt now ({problem}); it is by itself once it is back"
            ) from problem

    def notes(self) -> tuple[str, ...]:
        """What works in another way than usual, a sentence each; none of a store that does not say how it is doing."""
        return self.store.notes() if isinstance(self.store, DiagnosticsStore) else ()

    def _diagnostics(self) -> DiagnosticsStore:
        if isinstance(self.store, DiagnosticsStore):
            return self.store
        raise StoreError("this store does not say how it is doing")

    async def _running(self) -> AsyncIterator[Job]:
        query = Query(frozenset({Status.PROCESSING}), limit=BATCH, payload=False, result=False)
        while True:
            page = await self.store.find(query)
            for job in page.jobs:
                yield job
            if page.next is None:
                return
            query = msgspec.structs.replace(query, after=page.next)

    def _taken(self, job: Job) -> Settlement:
        standing = RetryState(attempt=job.attempt, max_retries=job.max_retries, retry_delay=job.retry_delay)
        failure = Raised(f"WorkerGivenUp: the job was taken from worker {job.worker_id}")
        verdict = decide(failure, self.registry.standing(job.type, standing), random.random())
        return Settlement(Report(Lease(job.id, job.token), ZERO), verdict)

    async def _settle(self, settlements: Sequence[Settlement], held_by: Sequence[str | None]) -> list[Recovered]:
        """Record the settlements; answers with those that were accepted."""
        statuses = await self.store.settle(settlements) if settlements else []
        return [
            Recovered(settlement.report.lease.id, worker_id, status)
            for settlement, worker_id, status in zip(settlements, held_by, statuses, strict=True)
            if status is not None
        ]


def _checked(verb: str, allowed: frozenset[Status], usual: frozenset[Status], **filters: Any) -> Query:
    """The query of a verb that takes only some states; `usual` are those that it takes if none are named."""
    query = check_query(**filters)
    if not query.statuses <= allowed:
        raise Invalid("status", f"{verb} takes jobs that are {' or '.join(status.name for status in sorted(allowed))}")
    return query if query.statuses else msgspec.structs.replace(query, statuses=usual)


def _unless(dry_run: bool, verb: Verb) -> Verb | None:
    return None if dry_run else verb
