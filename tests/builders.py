"""Short ways to make jobs and to lead them through their lives."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from uuid_utils.compat import uuid7

from demora.core.job import DEFAULT_QUEUE, IdempotencyKey, Job, NewJob, Priority
from demora.core.spans import from_ms
from demora.core.states import Status
from demora.core.statistics import Key, Stretch, Tally
from demora.core.verdict import Cancelled, Lapsed, Outcome, Raised, RetryState, Succeeded, decide
from demora.store.jobs import Added, Claimed, ClaimedJob, ClaimRequest, LapsedJob, Lease, Report, Settlement
from demora.store.store import Store

LEASE = timedelta(seconds=30)
DONE = Succeeded(b'"done"')
BROKEN = Raised("ValueError: no", permanent=True)
NO_SUCH_ID = "01900000-0000-7000-8000-000000000000"
NO_IDS = ["", "no id", NO_SUCH_ID.replace("-", ""), NO_SUCH_ID + "0", "zzzzzzzz-0000-7000-8000-000000000000", "é" * 36]


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def new_job(**changes: Any) -> NewJob:
    """A plain job, due at once, with what `changes` says."""
    usual = {"type": "demo.echo", "queue": DEFAULT_QUEUE, "priority": Priority.NORMAL, "payload": b'{"hi":1}'}
    fields = {"id": str(uuid7()), **usual, **changes}
    return NewJob(**{"name": fields["type"], **fields})


def claimed_job(**changes: Any) -> ClaimedJob:
    """A plain job as a worker holds it at its first attempt, without any store."""
    job = new_job(**changes)
    return ClaimedJob(
        Lease(job.id, 1),
        **{field: getattr(job, field) for field in ("type", "name", "queue", "priority", "payload", "timeout", "tags")},
        retry_state=RetryState(1),
        scheduled_at=from_ms(1_800_000_000_000),
    )


def key(name: str = "k", request: bytes = b"request", **changes: Any) -> IdempotencyKey:
    return IdempotencyKey(name, request, **changes)


async def add_one(store: Store, **changes: Any) -> Added:
    [added] = await store.add([new_job(**changes)])
    return added


async def add_ids(store: Store, *changes: dict[str, Any]) -> list[str]:
    """Add jobs in one call; answers with their ids."""
    return [added.id for added in await store.add([new_job(**change) for change in changes])]


async def claim(store: Store, limit: int = 100, *, worker: str = "ann", lease: timedelta = LEASE, **options: Any) -> Claimed:
    return await store.claim(ClaimRequest(worker, limit, lease=lease, **options))


async def claim_ids(store: Store, limit: int = 100, **options: Any) -> list[str]:
    return [job.lease.id for job in (await claim(store, limit, **options)).jobs]


async def claim_one(store: Store, **options: Any) -> ClaimedJob:
    [job] = (await claim(store, 1, **options)).jobs
    return job


async def lapsed_one(store: Store) -> LapsedJob:
    [job] = (await claim(store, 0)).lapsed
    return job


def settlement(job: ClaimedJob | LapsedJob, outcome: Outcome, *, ran: timedelta = timedelta(0), **report: Any) -> Settlement:
    """The settlement of a run that came to `outcome`, as a worker makes it."""
    verdict = decide(outcome, job.retry_state, 0.0)
    return Settlement(Report(job.lease, ran, **report), outcome, verdict, lapsed=isinstance(outcome, Lapsed))


async def settle(store: Store, job: ClaimedJob | LapsedJob, outcome: Outcome, **report: Any) -> Status | None:
    [status] = await store.settle([settlement(job, outcome, **report)])
    return status


async def settle_lapsed(store: Store) -> Status | None:
    """Do what whoever claims does with the one job whose lease lapsed."""
    job = await lapsed_one(store)
    return await settle(store, job, Lapsed(job.worker_id))


async def run_one(store: Store, outcome: Outcome = DONE) -> str:
    """Claim the next job and settle it; answers with its id."""
    job = await claim_one(store)
    assert await settle(store, job, outcome) is not None
    return job.lease.id


async def ended_one(store: Store, status: Status, **changes: Any) -> str:
    """A job that has come to this end, by a run of it."""
    outcomes = {Status.COMPLETED: DONE, Status.FAILED: BROKEN, Status.CANCELLED: Cancelled("no need")}
    await add_one(store, **changes)
    return await run_one(store, outcomes[status])


async def job_of(store: Store, id: str) -> Job:
    job = await store.get(id)
    assert job is not None
    return job


async def status_of(store: Store, id: str) -> Status:
    return (await job_of(store, id)).status


def without(job: Job, *fields: str) -> dict[str, Any]:
    """What a job says of itself, but for some fields."""
    return {name: value for name, value in msgspec.structs.asdict(job).items() if name not in fields}


class Taken:
    """All windows of a reading."""

    def __init__(self) -> None:
        self.windows: list[tuple[Key, Tally]] = []

    def begin(self, now: datetime) -> None:
        self.now = now
        self.windows.clear()

    def take(self, key: Key, tally: Tally) -> bool:
        self.windows.append((key, tally))
        return True


async def windows_of(store: Store, stretch: Stretch = Stretch.HOUR) -> list[tuple[Key, Tally]]:
    """What was counted in a stretch of time."""
    taken = Taken()
    await store.statistics.read(stretch, taken)
    return taken.windows
