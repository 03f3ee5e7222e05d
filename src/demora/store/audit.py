"""The second, small port: what an engine can show of its jobs to whoever checks it, and the values it shows it in.

Running jobs needs none of it, so it stays out of `Store`. Times are milliseconds since 1970, `boot` and leases milliseconds
of the machine's boot, as the database holds them; statuses go by their names.
"""

from typing import Literal, Protocol, runtime_checkable

import msgspec

Step = Literal["added", "claimed", "renewed", "settled", "wished", "cancelled", "retried", "changed", "lapsed", "removed"]
Trace = Literal["accepted", "stale"]


class SqlEvent(msgspec.Struct, frozen=True, tag_field="source", tag="sql", omit_defaults=True, gc=False):
    """One step in the life of a job, as the database recorded it in the transaction that made it.

    The `old_…` fields say how the job stood before. `wished`: the request to cancel a running job; `cancelled`: a
    waiting job
    ended; `lapsed`: a new boot of the machine ended the lease. Two kinds are no steps but what became of a worker's write:
    `accepted` and `stale`, that is refused. There `token` is the writer's, `wrote` says what it wrote (renew, settle, or
    lapse), and the `old_…` fields how the job stands once it was answered.
    """

    seq: int
    at: int
    boot: int
    job: str
    kind: Step | Trace
    wrote: str | None = None
    old_status: str | None = None
    status: str | None = None
    old_token: int | None = None
    token: int = 0
    credits: int = 0
    retries: int = 0
    generation: int = 1
    max_retries: int = 0
    queue: str | None = None
    lane: int | None = None
    rank: int | None = None
    due_at: int = 0
    worker: str | None = None
    old_lease_until: int | None = None
    lease_until: int | None = None
    wished: bool = False
    error: str | None = None
    expires_at: int | None = None
    unique: str | None = None  # type and key


class JobFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job stands: what its row says, and the tokens of the attempts on record besides it."""

    id: str
    status: str
    queue: str = "default"
    token: int = 0
    attempt: int = 0
    retry_count: int = 0
    generation: int = 1
    max_retries: int = 0
    created_at: int = 0
    due_at: int = 0
    lease_until: int | None = None
    completed_at: int | None = None
    worker: str | None = None
    wished: bool = False
    error: str | None = None
    recorded: tuple[int, ...] = ()
    webhook: bool = False  # whether somebody is told of its end
    on_cancel: bool = False  # and also if that is a cancel
    cause: str | None = None  # of a delivery: the job whose end it tells of
    lane: int = 0


class KeyFacts(msgspec.Struct, frozen=True):
    """An idempotency key that is kept, and the job that it made."""

    scope: str
    key: str
    job: str
    created_at: int
    expires_at: int


class QueueFacts(msgspec.Struct, frozen=True):
    """A queue as every face shows it."""

    name: str
    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0
    paused: bool = False


class PaceFacts(msgspec.Struct, frozen=True):
    """A change of a queue's pace: the lanes that it governs from then on, none if it was taken off, and its rates as gap,
    burst and stagger."""

    queue: str
    at: int
    lanes: tuple[int, ...] = ()
    rates: tuple[tuple[int, int, int], ...] = ()


class Evidence(msgspec.Struct, frozen=True):
    """All that an engine can show, from one moment. `events` is None where there is no audit; `integrity` is what the
    database found when it examined itself, empty if nothing is wrong, None if it was not asked; `strays` are ids that the
    history of attempts knows and the jobs do not."""

    now: int
    jobs: list[JobFacts]
    queues: list[QueueFacts] = []
    keys: list[KeyFacts] = []
    strays: list[str] = []
    integrity: list[str] | None = None
    paces: list[PaceFacts] = []
    events: list[SqlEvent] | None = None


@runtime_checkable
class AuditStore(Protocol):
    """An engine that can be checked."""

    async def events(self, after: int = 0) -> list[SqlEvent]:
        """The events with a greater `seq`, in order; none if there was no audit."""
        ...

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        """All that there is to show, read in one transaction, so that rows and events agree."""
        ...

    async def end_audit(self) -> None:
        """Write no more events, in no process, and forget those that were written, so that a later audit has no gap."""
        ...
