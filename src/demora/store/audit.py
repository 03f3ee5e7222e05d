"""The port for audits: everything that a checker needs to test demora's guarantees against the database.

It is separate from `Store` because running jobs does not need it. Times are milliseconds since 1970; `boot` and leases are
milliseconds of the machine's boot clock, as the database stores them. Statuses are given by name.
"""

from typing import Literal, Protocol

import msgspec

JobStep = Literal[
    "added",
    "claimed",
    "renewed",
    "settled",
    "cancel_requested",
    "cancelled",
    "retried",
    "restored",
    "changed",
    "lapsed",
    "removed",
]
Trace = Literal["accepted", "stale"]


class SqlEvent(msgspec.Struct, frozen=True, tag_field="source", tag="sql", omit_defaults=True, gc=False):
    """One step of a job, recorded by the database in the transaction that made it.

    The `old_…` fields are the state before the step. Among the kinds, `cancel_requested` is a request to cancel a
    running job, `cancelled` is the end of a waiting job, `restored` is the undo of a cancel (recorded as `retried` if the
    job had no attempt), and `lapsed` is the end of a lease by a new boot of the machine.

    Two kinds are not steps but results of a worker's write: `accepted`, and `stale` for a write that was refused. There
    `token` is the writer's, `wrote` is the verb (renew, settle or lapse), and the `old_…` fields are the state after the
    result.
    """

    seq: int
    at: int
    boot: int
    job: str
    kind: JobStep | Trace
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
    cancel_requested: bool = False
    error: str | None = None
    expires_at: int | None = None
    unique: str | None = None  # type and key


class JobFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The row of a job, and the tokens of its recorded attempts (`recorded`)."""

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
    cancel_requested: bool = False
    error: str | None = None
    recorded: tuple[int, ...] = ()
    webhook: bool = False  # whether its end is delivered to a webhook
    on_cancel: bool = False  # whether that includes a cancel
    cause: str | None = None  # of a delivery: the job whose end it reports
    lane: int = 0
    schedule: str | None = None
    slot_at: int | None = None


class KeyFacts(msgspec.Struct, frozen=True):
    """An idempotency key on record, and the job that it made."""

    namespace: str
    key: str
    job: str
    created_at: int
    expires_at: int


class QueueFacts(msgspec.Struct, frozen=True):
    """A queue with its counts, as API and CLI show it."""

    name: str
    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0
    paused: bool = False


class PaceFacts(msgspec.Struct, frozen=True):
    """A change of a queue's pace: the lanes that it governs from then on (none if the pace was removed), and its rates as
    gap, burst and stagger. With `follows` the queue keeps to the pace of `*` from then on."""

    queue: str
    at: int
    lanes: tuple[int, ...] = ()
    rates: tuple[tuple[int, int, int], ...] = ()
    follows: bool = False


class FireFacts(msgspec.Struct, frozen=True):
    """The record of a fire time of a schedule: what became of it, and its job if it fired."""

    schedule: str
    slot_at: int
    outcome: str
    job: str | None = None


class Evidence(msgspec.Struct, frozen=True):
    """The contents of a database at one moment.

    `events` is None if no audit was recorded. `integrity` are the errors that the database's own check found, None if it was
    not run. `orphans` are ids that occur in the history of attempts but have no job.
    """

    now: int
    jobs: list[JobFacts]
    queues: list[QueueFacts] = []
    keys: list[KeyFacts] = []
    orphans: list[str] = []
    integrity: list[str] | None = None
    paces: list[PaceFacts] = []
    fire_times: list[FireFacts] = []
    events: list[SqlEvent] | None = None


class AuditStore(Protocol):
    """What a checker reads: the rows, and the events of an audit."""

    async def events(self, after: int = 0) -> list[SqlEvent]:
        """Return the events with a greater `seq`, in order; none if no audit was recorded."""
        ...

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        """Return everything, read in one transaction, so that rows and events agree. `integrity` runs the database check."""
        ...

    async def end(self) -> None:
        """Stop the recording in all processes, and delete the recorded events, so that a later audit has no gap."""
        ...
