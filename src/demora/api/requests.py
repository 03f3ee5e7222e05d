"""What a caller may send: the bodies and queries of the API. Unknown fields are refused, and null is the same as left out.

Only types are checked here; what the values may be is for the core to say, so that every face refuses the same things.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..client.bulk import FIELDS
from ..client.queues import MOST_PER_PAGE
from ..core.job import Priority
from ..core.outbound import MOST_URL
from ..core.pace import Governs
from ..core.pace_request import MOST_BURST, PaceRequest, RateRequest, check_governs, check_pace
from ..core.request import MOST_KEY, MOST_NAME, MOST_REASON, MOST_RETRIES, MOST_TAG, MOST_TAGS
from ..core.states import Status
from ..errors import Invalid

MOST_JOBS = 1000  # of one batch
MOST_DEAD, USUAL_DEAD = 10_000, 1000  # dead letters that one request acts on
LONGEST_WAIT = timedelta(seconds=60)
USUAL_WAIT = timedelta(seconds=30)

_FAR = 2**53  # milliseconds: longer than any span that is allowed


def _told(description: str, **schema: Any) -> Meta:
    """Tells readers of the OpenAPI document what the core will check."""
    return Meta(description=description, extra_json_schema=schema)


_Priority = Annotated[str, _told("How urgent; the first goes first.", enum=list(Priority.__members__))]
_Status = Annotated[str, _told("A status.", enum=list(Status.__members__))]
_When = Annotated[datetime, _told("RFC 3339 with a zone; a time that has passed means now.")]
_Tag = Annotated[str, _told("A tag.", minLength=1, maxLength=MOST_TAG)]
_Keep = Annotated[
    str, _told("How long ended jobs are kept: an age, a number, both (`7d,1000`), or `forever`; null: as in the settings.")
]
_Fields = Annotated[
    list[Annotated[str, _told("A field.", enum=list(FIELDS))]],
    _told("Fields that a list leaves out unless they are named here; repeat it or separate with commas."),
]
_Tags = Annotated[list[_Tag], _told("Words to find jobs by.", maxItems=MOST_TAGS)]


def _ms(description: str) -> Meta:
    return _told(f"{description}, in milliseconds.", minimum=0)


class JobRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A job to run. `scheduledAt` and `delay` exclude each other; with neither it is due at once."""

    type: Annotated[str, _told("Which handler runs it.", minLength=1, maxLength=128)]
    name: Annotated[str, _told("A name for people; the type if left out.", minLength=1, maxLength=MOST_NAME)] | None = None
    payload: Annotated[dict[str, Any], _told("What the handler is called with.")] | None = None
    queue: Annotated[str, _told("Its queue, `default` if left out.", pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    priority: _Priority | None = None
    scheduled_at: _When | None = None
    delay: Annotated[int, _ms("How long after now it is due")] | None = None
    max_retries: Annotated[int, _told("Runs after the first.", minimum=0, maximum=MOST_RETRIES)] | None = None
    retry_delay: Annotated[int, _ms("The first wait after a failure, doubled each time")] | None = None
    timeout: Annotated[int, _ms("How long one run may take")] | None = None
    tags: _Tags | None = None
    webhook_url: Annotated[str, _told("Told of its end: an https URL.", format="uri", maxLength=MOST_URL)] | None = None
    idempotency_key: Annotated[str, _told("Makes the request repeatable for 24 h.", maxLength=MOST_KEY)] | None = None
    expires_at: Annotated[datetime, _told("If it has not been started by then, it never is.")] | None = None
    expires_in: Annotated[int, _ms("The same, counted from now")] | None = None
    unique: Annotated[str, _told("One job of its type and this key waits; or type+payload.", maxLength=MOST_KEY)] | None = (
        None
    )
    if_waiting: Annotated[str, _told("What becomes of the one that waits.", enum=["keep", "replace"])] | None = None
    webhook_on_cancel: Annotated[bool, _told("Whether a cancel is told too.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.make`."""
        return {
            "type": self.type,
            "name": self.name,
            "payload": self.payload,
            "queue": self.queue,
            "priority": self.priority,
            "at": self.scheduled_at,
            "delay": _span(self.delay),
            "max_retries": self.max_retries,
            "retry_delay": _span(self.retry_delay),
            "timeout": _span(self.timeout),
            "tags": self.tags,
            "webhook_url": self.webhook_url,
            "key": self.idempotency_key,
            "expires_at": self.expires_at,
            "expires_in": _span(self.expires_in),
            "unique": self.unique,
            "if_waiting": self.if_waiting,
            "webhook_on_cancel": self.webhook_on_cancel,
        }


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to add together: all or none."""

    jobs: Annotated[list[JobRequest], _told("The jobs, in order.", minItems=1, maxItems=MOST_JOBS)]
    spread: Annotated[int, _ms("Due times spread evenly over so long from now; the jobs have none of their own")] | None = (
        None
    )
    preview: Annotated[bool, _told("Whether only to answer when each job would be due, and to store nothing.")] | None = None

    def options(self) -> list[dict[str, Any]]:
        if not 1 <= len(self.jobs) <= MOST_JOBS:
            raise Invalid("jobs", f"must be 1 to {MOST_JOBS} jobs")
        return [request.options() for request in self.jobs]

    def over(self) -> timedelta | None:
        return _span(self.spread)


class JobChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What to change of a waiting job; what is left out stays."""

    priority: _Priority | None = None
    scheduled_at: _When | None = None
    delay: Annotated[int, _ms("How long after now it is due")] | None = None
    tags: _Tags | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.reschedule`."""
        _refuse_empty(self)
        return {"priority": self.priority, "at": self.scheduled_at, "delay": _span(self.delay), "tags": self.tags}


class RateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change of a rate; what is left out stays."""

    gap: Annotated[int, _ms("The least time from the first release of a cycle to that of the next")] | None = None
    burst: Annotated[int, _told("Releases in a cycle.", minimum=1, maximum=MOST_BURST)] | None = None
    stagger: Annotated[int, _ms("The time between two releases of a cycle")] | None = None

    def request(self) -> RateRequest:
        return RateRequest(_span(self.gap), self.burst, _span(self.stagger))


class PaceBody(RateBody, frozen=True, forbid_unknown_fields=True):
    """What to change of a pace; what is left out stays as it is, or as usual if the queue has none."""

    rapid: Annotated[RateBody, _told("The rate while no real-time job waits; null: none.")] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    governs: Annotated[str, _told("Which delayed jobs.", enum=[kind.value for kind in Governs])] | None = None
    protect: Annotated[list[str], _told("Queues whose real-time jobs count; its own if empty.")] | None = None

    def pace(self) -> PaceRequest:
        rapid = None if self.rapid is msgspec.UNSET else False if self.rapid is None else self.rapid.request()
        protect = None if self.protect is None else tuple(self.protect)
        try:
            governs = None if self.governs is None else check_governs(self.governs)
            return check_pace(PaceRequest(_span(self.gap), self.burst, _span(self.stagger), rapid, governs, protect))
        except Invalid as problem:
            raise of_pace(problem) from None


def of_pace(problem: Invalid) -> Invalid:
    """The same, the field named by its place in the body."""
    return Invalid(f"pace.{problem.field.replace('rapid_', 'rapid.')}", problem.reason)


class QueueRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What to change of a queue's order, and of what it keeps; what is left out stays."""

    step: (
        Annotated[int, _ms("How much longer a job waits than one of the next higher priority before it goes first")] | None
    ) = None
    strict: Annotated[bool, _told("Whether a higher priority always goes first.")] | None = None
    head_start: Annotated[int, _ms("How far real-time jobs are put before delayed ones")] | None = None
    keep_completed: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    keep_cancelled: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    keep_failed: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    webhook_url: Annotated[str, _told("Of jobs that name none; empty for none.", maxLength=MOST_URL)] | None = None
    pace: Annotated[PaceBody, _told("Its pace; null takes it off.")] | msgspec.UnsetType | None = msgspec.UNSET

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.set_queue`."""
        _refuse_empty(self)
        return {
            "step": _span(self.step),
            "strict": self.strict,
            "head_start": _span(self.head_start),
            "keep_completed": self.keep_completed,
            "keep_cancelled": self.keep_cancelled,
            "keep_failed": self.keep_failed,
            "webhook_url": self.webhook_url,
        }


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a queue is paused; may be left out."""

    reason: Annotated[str, _told("For people.", minLength=1, maxLength=MOST_REASON)] | None = None


class QueuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which queues to list, by name."""

    limit: Annotated[int, _told("How many.", minimum=1, maximum=MOST_PER_PAGE)] = MOST_PER_PAGE
    cursor: Annotated[str, _told("The nextCursor of the page before.")] | None = None


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No field at all."""


class FindQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to list, newest first."""

    status: Annotated[list[_Status], _told("Any of these; repeat it or separate with commas.")] = []
    queue: Annotated[str, _told("Only this queue.")] | None = None
    type: Annotated[str, _told("Only this type.")] | None = None
    tag: Annotated[str, _told("Only with this tag.")] | None = None
    limit: Annotated[int, _told("How many.", minimum=1, maximum=MOST_PER_PAGE)] = 50
    cursor: Annotated[str, _told("The nextCursor of the page before.")] | None = None
    fields: _Fields = []

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.find`."""
        wanted = _separated(self.status)
        narrowed = {"queue": self.queue, "type": self.type, "tag": self.tag, "fields": _separated(self.fields)}
        return {**narrowed, "status": wanted, "limit": self.limit, "after": self.cursor}


class _WhichDeadLetters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The filters of dead letters: those count that match all that is given."""

    queue: Annotated[str, _told("Only this queue.")] | None = None
    type: Annotated[str, _told("Only this type.")] | None = None
    tag: Annotated[str, _told("Only with this tag.")] | None = None
    older_than: Annotated[int, _ms("Only those that failed so long ago")] | None = None

    def filters(self) -> dict[str, Any]:
        return {"queue": self.queue, "type": self.type, "tag": self.tag, "older_than": _span(self.older_than)}


class DeadLettersQuery(_WhichDeadLetters, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which dead letters to list, newest first."""

    limit: Annotated[int, _told("How many.", minimum=1, maximum=MOST_PER_PAGE)] = 50
    cursor: Annotated[str, _told("The nextCursor of the page before.")] | None = None
    fields: _Fields = []

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.find`."""
        page = {"limit": self.limit, "after": self.cursor, "fields": _separated(self.fields)}
        return {**self.filters(), "status": [Status.FAILED], **page}


class DeadLettersRequest(_WhichDeadLetters, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which dead letters to act on; `all` must be true if nothing narrows it down."""

    all: Annotated[bool, _told("Whether it may be about every dead letter.")] | None = None
    limit: Annotated[int, _told("At most so many, the newest first.", minimum=1, maximum=MOST_DEAD)] | None = None
    dry_run: Annotated[bool, _told("Whether only to count.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.retry_many` and `Client.delete_many`."""
        limit = USUAL_DEAD if self.limit is None else self.limit
        if not self.all and set(self.filters().values()) == {None}:
            raise Invalid("body", 'does not say which; give queue, type, tag or olderThan, or "all": true')
        if not 1 <= limit <= MOST_DEAD:
            raise Invalid("limit", f"must be from 1 to {MOST_DEAD}")
        return {**self.filters(), "limit": limit, "dry_run": bool(self.dry_run)}


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: Annotated[int, _told("Milliseconds.", minimum=0, maximum=LONGEST_WAIT // timedelta(milliseconds=1))] | None = (
        None
    )

    def span(self) -> timedelta:
        """How long to wait; `Client.wait` refuses a negative span."""
        wanted = USUAL_WAIT if self.timeout is None else _milliseconds(self.timeout)
        if wanted > LONGEST_WAIT:
            raise Invalid("timeout", f"must be from 0 to {LONGEST_WAIT // timedelta(milliseconds=1)} milliseconds")
        return wanted


def _separated(given: list[str]) -> list[str]:
    """Values that are repeated, or separated by commas."""
    return [one for some in given for one in some.split(",")]


def _span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else _milliseconds(milliseconds)


def _milliseconds(count: int) -> timedelta:
    """The span; one that no timedelta could hold becomes one that is refused all the same."""
    return timedelta(milliseconds=max(-1, min(count, _FAR)))


def _refuse_empty(request: msgspec.Struct) -> None:
    """Refuse a request that gives no field; null gives one only where it means something."""
    if all(getattr(request, field.name) == field.default for field in msgspec.structs.fields(request)):
        raise Invalid("body", f"says nothing to change; give at least one of {', '.join(request.__struct_encode_fields__)}")
