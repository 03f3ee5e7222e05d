"""The state of the system, for operators: workers, health, overview, evidence for a checker, and the Redis line."""

from datetime import timedelta

import msgspec

from ..core.workers import WorkerRecord
from ..errors import StoreError
from ..line.port import LineAway
from ..line.reconcile import Reconcilable, Reconciliation
from ..store.audit import Evidence
from ..store.diagnostics import Activity, JobsOverview, Probed, Size
from ..store.store import Store


class Health(msgspec.Struct, frozen=True):
    """Whether jobs are being run: `healthy`, or `degraded` with the reason.

    `notes` are deviations from the usual way of working that are no faults, such as workers that poll because the database
    cannot notify them.
    """

    status: str
    reason: str | None
    workers: int
    notes: tuple[str, ...] = ()


class Diagnostics:
    """Reports the state of one store, and of its Redis line if it has one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers that are alive."""
        return [worker for worker in await self._store.workers() if worker.live]

    async def registered_workers(self) -> list[WorkerRecord]:
        """Return all workers that have not retired, also those whose heartbeat is overdue."""
        return await self._store.workers()

    async def registered_schedulers(self) -> dict[str, str]:
        """Return the live processes without a worker, which are schedulers and services, by id. Each has the paces that its
        settings ask for, as one text: `* gap=3m burst=5; mail off`."""
        return await self._store.schedules.attending()

    async def health(self) -> Health:
        """Return whether jobs are being run. Tries a write where the store offers that, and raises what it raises."""
        if isinstance(self._store.diagnostics, Probed):
            await self._store.diagnostics.probe()
        alive = len(await self.workers())
        reason = None if alive else "no live worker: jobs wait until one is started (demora worker)"
        return Health("healthy" if alive else "degraded", reason, alive, self.notes())

    def notes(self) -> tuple[str, ...]:
        """Return the store's deviations from its usual way of working, a sentence each."""
        return self._store.diagnostics.notes()

    def line_used(self) -> bool | None:
        """Return whether the Redis line hands out the jobs; None if there is no line. Any thread may ask."""
        return self._store.uses_line() if isinstance(self._store, Reconcilable) else None

    async def overview(self, *, ended: bool = True) -> JobsOverview:
        """Return the state of all jobs as of one moment. Reads every job; without `ended` only those that wait or run."""
        return await self._store.diagnostics.overview(ended=ended)

    async def coming(self, until: timedelta, steps: int, *, within: timedelta | None = None) -> list[int]:
        """Return how many waiting jobs come due in each of `steps` equal parts of the time from now until then. With a time
        limit, `within`, a slow count raises `SearchTooSlow`."""
        return await self._store.diagnostics.coming(until, steps, within=within)

    async def sizes(self) -> list[Size]:
        """Return how many bytes the parts of the database take, the largest first."""
        return await self._store.diagnostics.sizes()

    async def activity(self, mark: int | None = None) -> Activity:
        """Return the state of queues and workers, and how many jobs were added since the `mark` of an earlier activity."""
        return await self._store.diagnostics.activity(mark)

    async def evidence(self) -> Evidence:
        """Return everything that a checker of demora's guarantees needs, as of one moment."""
        return await self._store.audit.evidence()

    async def end_audit(self) -> None:
        """Stop the recording of audit events in all processes, and delete the recorded ones."""
        await self._store.audit.end()

    async def compare_line(self, *, repair: bool = False) -> Reconciliation | None:
        """Compare the Redis line with the database, and with `repair` correct the line. None if there is no line."""
        return await self._store.reconcile(repair=repair) if isinstance(self._store, Reconcilable) else None

    async def rebuild_line(self) -> int:
        """Start a new Redis line, fill it from the database, and return its epoch."""
        if not isinstance(self._store, Reconcilable):
            raise StoreError("there is no Redis line to rebuild: DEMORA_REDIS_URL is not set")
        try:
            return await self._store.rebuild()
        except LineAway as problem:
            raise StoreError(
                f"the Redis line cannot be rebuilt now ({problem}); demora rebuilds it when Redis is reachable again"
            ) from problem
