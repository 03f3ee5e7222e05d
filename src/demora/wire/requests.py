"""The bodies and queries that a caller can send. Unknown fields are refused, and null is the same as a missing field.

This module checks only types. The core checks the values, so that the API, the command line and Python agree.
"""

from collections.abc import Set
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, cast

import msgspec
from msgspec import Meta

from ..client.bulk import FIELDS
from ..client.queues import MOST_PER_PAGE
from ..client.schedules import MOST_RUNS, RUNS
from ..client.statistics import MOST_NAMED, USUAL_NAMED
from ..core.action import Action, check_action
from ..core.filters import MOST_TEXT, NO_FILTER, JobFilter, Sort, TimeRange, parse_filter
from ..core.job import NewJob, Priority
from ..core.outbound.targets import MOST_URL
from ..core.pace import MOST_BURST, Governs, PaceRequest, RateRequest, check_governs, check_pace
from ..core.request import (
    MOST_KEY,
    MOST_NAME,
    MOST_REASON,
    MOST_RETRIES,
    MOST_TAG,
    MOST_TAGS,
    check_priority,
    check_status,
    check_tag,
)
from ..core.schedules.schedule import Missed, Overlap
from ..core.schedules.schedule_request import MOST_MISSED_LIMIT, MOST_MOMENTS
from ..core.spans import span_ms
from ..core.states import Status
from ..errors import Invalid
from .names import RENAMED

DEFAULT_PACE = "default"  # in place of a pace: that of all queues
MOST_JOBS = 1000  # of one batch
MOST_DEAD, USUAL_DEAD = 10_000, 1000  # dead letters that one request acts on
LONGEST_WAIT = timedelta(seconds=60)
USUAL_WAIT = timedelta(seconds=30)

_FAR = 2**53  # milliseconds: longer than any allowed span


def doc(description: str, **schema: Any) -> Meta:
    """Document a field in the OpenAPI document. The constraints are enforced where the value is used."""
    return Meta(description=description, extra_json_schema=schema)


_Priority = Annotated[str, doc("The priority, most urgent first.", enum=list(Priority.__members__))]
_Status = Annotated[str, doc("A status.", enum=list(Status.__members__))]
_When = Annotated[datetime, doc("RFC 3339 with a time zone; a time in the past means now.")]
_Tag = Annotated[str, doc("A tag.", minLength=1, maxLength=MOST_TAG)]
_Keep = Annotated[
    str, doc("How long ended jobs are kept: an age, a number, both (`7d,1000`), or `forever`; null: the setting.")
]
_Fields = Annotated[
    list[Annotated[str, doc("A field.", enum=list(FIELDS))]],
    doc("Fields to include, which a list otherwise omits; repeat the parameter or separate values with commas."),
]
_Tags = Annotated[list[_Tag], doc("Tags to find jobs by.", maxItems=MOST_TAGS)]


def _ms(description: str) -> Meta:
    return doc(f"{description}, in milliseconds.", minimum=0)


class JobRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A job to add. `scheduledAt` and `delay` exclude each other; without either the job is due at once."""

    type: Annotated[str, doc("The job type, which selects the handler.", minLength=1, maxLength=128, examples=["demo.echo"])]
    name: Annotated[str, doc("A name for people. Default: the type.", minLength=1, maxLength=MOST_NAME)] | None = None
    payload: Annotated[dict[str, Any], doc("The arguments of the handler.")] | None = None
    queue: Annotated[str, doc("The queue. Default: `default`.", pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    priority: _Priority | None = None
    scheduled_at: _When | None = None
    delay: Annotated[int, _ms("How long from now the job is due")] | None = None
    max_retries: Annotated[int, doc("Retries after the first run.", minimum=0, maximum=MOST_RETRIES)] | None = None
    retry_delay: Annotated[int, _ms("The delay before the first retry, doubled each time")] | None = None
    timeout: Annotated[int, _ms("The longest run")] | None = None
    tags: _Tags | None = None
    webhook_url: (
        Annotated[str, doc("Where to send a webhook when the job ends: an https URL.", format="uri", maxLength=MOST_URL)]
        | None
    ) = None
    idempotency_key: Annotated[str, doc("Makes the request safe to repeat for 24 h.", maxLength=MOST_KEY)] | None = None
    expires_at: Annotated[datetime, doc("The job is cancelled if no attempt has started by then.")] | None = None
    expires_in: Annotated[int, _ms("The same, as a span from now")] | None = None
    unique: Annotated[str, doc("Only one waiting job of this type and key; or type+payload.", maxLength=MOST_KEY)] | None = (
        None
    )
    if_waiting: Annotated[str, doc("Keep or replace the unique job that waits.", enum=["keep", "replace"])] | None = None
    webhook_on_cancel: Annotated[bool, doc("Whether to send the webhook for a cancelled job too.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.make`, without those that are not given."""
        values = zip(_OPTIONS, msgspec.structs.astuple(self), strict=True)
        options = {name: value for name, value in values if value is not None}  # few of the fields are given
        for name in _SPANS & options.keys():
            options[name] = as_span(options[name])
        return options

    @classmethod
    def of(cls, job: NewJob, given: Set[str], *, key: str) -> Self:
        """The request for a job with an idempotency key: its payload and those of its options that are `given`, by the names
        that `options` gives them."""
        unique = job.unique
        options: dict[str, Any] = {
            "name": job.name,
            "queue": job.queue,
            "priority": job.priority.name,
            "at": job.at,
            "delay": _ms_of(job.delay),
            "max_retries": job.max_retries,
            "retry_delay": _ms_of(job.retry_delay),
            "timeout": _ms_of(job.timeout),
            "tags": list(job.tags),
            "webhook_url": job.webhook_url,
            "expires_at": job.expires_at,
            "expires_in": _ms_of(job.expires_in),
            "unique": None if unique is None else unique.key,
            "if_waiting": None if unique is None else "replace" if unique.replace else "keep",
            "webhook_on_cancel": job.webhook_on_cancel,
        }
        sent = {RENAMED.get(name, name): value for name, value in options.items() if name in given}
        return cls(type=job.type, payload=cast(Any, msgspec.Raw(job.payload)), idempotency_key=key, **sent)


_OPTIONS = [{"scheduled_at": "at", "idempotency_key": "key"}.get(field, field) for field in JobRequest.__struct_fields__]
_SPANS = {"delay", "retry_delay", "timeout", "expires_in"}


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to add together: all or none."""

    jobs: Annotated[list[JobRequest], doc("The jobs, in order.", minItems=1, maxItems=MOST_JOBS)]
    spread: (
        Annotated[int, _ms("Spread the due times evenly over this span from now; the jobs must have none of their own")]
        | None
    ) = None
    preview: Annotated[bool, doc("Only return when each job would be due, and add nothing.")] | None = None

    def options(self) -> list[dict[str, Any]]:
        if not 1 <= len(self.jobs) <= MOST_JOBS:
            raise Invalid("jobs", f"must be 1 to {MOST_JOBS} jobs")
        return [request.options() for request in self.jobs]

    def over(self) -> timedelta | None:
        return _span(self.spread)


class JobChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Changes to a waiting job; missing fields stay as they are."""

    priority: _Priority | None = None
    scheduled_at: _When | None = None
    delay: Annotated[int, _ms("How long from now the job is due")] | None = None
    tags: _Tags | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.reschedule`."""
        _refuse_empty(self)
        return {"priority": self.priority, "at": self.scheduled_at, "delay": _span(self.delay), "tags": self.tags}


class RateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a rate; missing fields stay as they are."""

    gap: Annotated[int, _ms("The least time between the first releases of two cycles")] | None = None
    burst: Annotated[int, doc("Releases per cycle.", minimum=1, maximum=MOST_BURST)] | None = None
    stagger: Annotated[int, _ms("The time between two releases of a cycle, by default up to 30 s")] | None = None

    def request(self) -> RateRequest:
        return RateRequest(_span(self.gap), self.burst, _span(self.stagger))


class PaceBody(RateBody, frozen=True, forbid_unknown_fields=True):
    """Changes to a pace; missing fields stay as they are, or get the defaults if the queue has no pace."""

    rapid: Annotated[RateBody, doc("The rate while no real-time job waits; null: none.")] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    governs: Annotated[str, doc("Which delayed jobs the pace holds.", enum=[kind.value for kind in Governs])] | None = None
    protect: (
        Annotated[list[str], doc("Queues whose real-time jobs prevent the rapid rate. Default: the queue itself.")] | None
    ) = None

    def pace(self) -> PaceRequest:
        rapid = None if self.rapid is msgspec.UNSET else False if self.rapid is None else self.rapid.request()
        protect = None if self.protect is None else tuple(self.protect)
        try:
            governs = None if self.governs is None else check_governs(self.governs)
            return check_pace(PaceRequest(_span(self.gap), self.burst, _span(self.stagger), rapid, governs, protect))
        except Invalid as problem:
            raise of_pace(problem) from None


def of_pace(problem: Invalid) -> Invalid:
    """Rename the field of an error by its place in the body."""
    return Invalid(f"pace.{problem.field.replace('rapid_', 'rapid.')}", problem.reason)


class QueueRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Changes to a queue; missing fields stay as they are."""

    step: Annotated[int, _ms("How much longer a job must wait to go before a job of the next higher priority")] | None = None
    strict: Annotated[bool, doc("Whether a higher priority always goes first.")] | None = None
    head_start: Annotated[int, _ms("The head start of real-time jobs over delayed jobs")] | None = None
    keep_completed: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    keep_cancelled: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    keep_failed: _Keep | msgspec.UnsetType | None = msgspec.UNSET
    webhook_url: (
        Annotated[str, doc("The webhook URL of jobs that have none of their own; empty for none.", maxLength=MOST_URL)]
        | None
    ) = None
    pace: (
        Annotated[PaceBody, doc("The pace; null removes it, and `default` makes the queue follow that of all queues.")]
        | Literal["default"]
        | msgspec.UnsetType
        | None
    ) = msgspec.UNSET

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
    """Why a queue is paused; optional."""

    reason: Annotated[str, doc("For people.", minLength=1, maxLength=MOST_REASON)] | None = None


class _Timing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When a schedule fires: one of `cron`, `every` and `at`."""

    cron: Annotated[str, doc("A cron expression of five fields, or six with the second first: `0 3 * * *`.")] | None = None
    every: Annotated[int, _ms("The interval, at least 1000")] | None = None
    at: Annotated[list[datetime], doc("Times: RFC 3339 with a time zone.", maxItems=MOST_MOMENTS)] | None = None
    timezone: Annotated[str, doc("The IANA time zone of the cron expression. Default: `UTC`.")] | None = None
    start_at: Annotated[datetime, doc("No fire time is before this time; null: none.")] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    end_at: Annotated[datetime, doc("No fire time is after this time; null: none.")] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    jitter: Annotated[int, _ms("Each job is due up to this much later, before the next fire time")] | None = None

    def timing(self) -> dict[str, Any]:
        """The values that were given, as `Client.add_schedule` takes them."""
        times = {"start_at": self.start_at, "end_at": self.end_at}
        given = {"cron": self.cron, "every": _span(self.every), "at": self.at, "timezone": self.timezone}
        return _given(given | {"jitter": _span(self.jitter)}, times)


class PreviewRequest(_Timing, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When a schedule would fire."""

    count: Annotated[int, doc("How many fire times to show.", minimum=1, maximum=MOST_RUNS)] = RUNS


class ScheduleChange(_Timing, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Changes to a schedule; missing fields stay as they are."""

    type: Annotated[str, doc("The type of its jobs.", minLength=1, maxLength=128)] | None = None
    payload: Annotated[dict[str, Any], doc("The arguments of the handler.")] | None = None
    queue: Annotated[str, doc("The queue of its jobs. Default: `default`.", pattern="^[A-Za-z0-9._-]{1,64}$")] | None = None
    priority: _Priority | None = None
    max_retries: Annotated[int, doc("Retries after the first run.", minimum=0, maximum=MOST_RETRIES)] | None = None
    retry_delay: Annotated[int, _ms("The delay before the first retry, doubled each time")] | None = None
    timeout: Annotated[int, _ms("The longest run of a job; null: the handler's")] | msgspec.UnsetType | None = msgspec.UNSET
    tags: _Tags | None = None
    webhook_url: (
        Annotated[str, doc("Where to send a webhook when a job ends; null: nowhere.", format="uri", maxLength=MOST_URL)]
        | msgspec.UnsetType
        | None
    ) = msgspec.UNSET
    enabled: Annotated[bool, doc("Whether it fires.")] | None = None
    reason: Annotated[str, doc("Why it is paused.", minLength=1, maxLength=MOST_REASON)] | msgspec.UnsetType | None = (
        msgspec.UNSET
    )
    overlap: (
        Annotated[
            str, doc("What happens at a fire time while an earlier job has not ended.", enum=[one.value for one in Overlap])
        ]
        | None
    ) = None
    missed: Annotated[str, doc("Which missed fire times still fire.", enum=[one.value for one in Missed])] | None = None
    missed_limit: Annotated[int, doc("How many of them, with `all`.", minimum=1, maximum=MOST_MISSED_LIMIT)] | None = None
    late_limit: Annotated[int, _ms("How late a missed fire time may still fire")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.change_schedule`."""
        _refuse_empty(self)
        return self.values()

    def values(self) -> dict[str, Any]:
        timeout = as_span(self.timeout) if isinstance(self.timeout, int) else self.timeout
        nullable = {"timeout": timeout, "webhook_url": self.webhook_url, "reason": self.reason}
        given = {
            "type": self.type,
            "payload": self.payload,
            "queue": self.queue,
            "priority": self.priority,
            "max_retries": self.max_retries,
            "retry_delay": _span(self.retry_delay),
            "tags": self.tags,
            "enabled": self.enabled,
            "overlap": self.overlap,
            "missed": self.missed,
            "missed_limit": self.missed_limit,
            "late_limit": _span(self.late_limit),
        }
        return self.timing() | _given(given, nullable)


class NewSchedule(ScheduleChange, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A schedule to add: its name, the type of its jobs, and one of `cron`, `every` and `at`."""

    name: Annotated[str, doc("The name, which no other schedule has.", minLength=1, maxLength=128)] = ""

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.add_schedule`."""
        values = self.values()
        return {"name": self.name, "type": values.pop("type", None), "payload": values.pop("payload", None), **values}


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many fire times to list."""

    count: Annotated[int, doc("How many.", minimum=1, maximum=MOST_RUNS)] = RUNS


class ScheduleJobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs of a schedule to list, newest first."""

    limit: Annotated[int, doc("How many.", minimum=1, maximum=MOST_PER_PAGE)] = 50
    cursor: Annotated[str, doc("The nextCursor of the previous page.")] | None = None


class QueuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which queues to list, by name."""

    limit: Annotated[int, doc("How many.", minimum=1, maximum=MOST_PER_PAGE)] = MOST_PER_PAGE
    cursor: Annotated[str, doc("The nextCursor of the previous page.")] | None = None


class StatsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the jobs are counted for this request."""

    fresh: Annotated[bool, doc("Count now, instead of showing a count of the last seconds.")] = False


Span = Annotated[Literal["hour", "day", "week"], doc("How far back: points of a minute, 15 minutes or an hour.")]


class MetricsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which stretch of time to show."""

    span: Span = "hour"


class NamedMetricsQuery(MetricsQuery, frozen=True, forbid_unknown_fields=True):
    """Which stretch of time to show, and of what."""

    name: Annotated[str, doc("Only this one.")] | None = None
    limit: Annotated[int, doc("How many, those with the most runs.", minimum=1, maximum=MOST_NAMED)] = USUAL_NAMED


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No field at all."""


class WhichJobs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The filters of jobs; a job must match all of them. `search` has the same filters as text."""

    search: Annotated[str, doc("A search: `status:failed type:email.* created:<2h`.", maxLength=MOST_TEXT)] | None = None
    status: Annotated[list[_Status], doc("One or more statuses; repeat the parameter or separate values with commas.")] = []
    queue: Annotated[str, doc("Only this queue.")] | None = None
    type: Annotated[str, doc("Only this type, or with a `*` at the end all types with this prefix.")] | None = None
    priority: Annotated[list[_Priority], doc("One or more priorities, as `status` has statuses.")] = []
    tag: Annotated[list[_Tag], doc("Only with this tag; repeat the parameter for jobs with all of them.")] = []
    schedule: Annotated[str, doc("Only jobs that this schedule has added.")] | None = None
    error: Annotated[str, doc("Only with this error class, the text of the error before its first colon.")] | None = None
    text: Annotated[str, doc("Only with this text in the name or the error, ignoring case.")] | None = None
    created_since: Annotated[datetime, doc("Only jobs that were added at this time or later.")] | None = None
    created_until: Annotated[datetime, doc("Only jobs that were added before this time.")] | None = None
    due_since: Annotated[datetime, doc("Only waiting jobs that are due at this time or later.")] | None = None
    due_until: Annotated[datetime, doc("Only waiting jobs that are due before this time.")] | None = None
    ended_since: Annotated[datetime, doc("Only jobs that ended at this time or later.")] | None = None
    ended_until: Annotated[datetime, doc("Only jobs that ended before this time.")] | None = None

    def filter(self) -> JobFilter:
        """The filter that is meant; `Invalid` if it is given both in parts and as a search, or malformed."""
        parts = JobFilter(
            statuses=frozenset(map(check_status, _separated(self.status))),
            queue=self.queue,
            type=self.type,
            priorities=frozenset(map(check_priority, _separated(self.priority))),
            tags=tuple(map(check_tag, self.tag)),
            schedule=self.schedule,
            error=self.error,
            text=self.text,
            created=TimeRange(self.created_since, self.created_until),
            due=TimeRange(self.due_since, self.due_until),
            ended=TimeRange(self.ended_since, self.ended_until),
        )
        if self.search is None:
            return parts.checked()
        if parts != NO_FILTER:
            raise Invalid("search", "is not allowed together with other filters; write them into the search")
        return parse_filter(self.search, datetime.now(UTC))


class FindQuery(WhichJobs, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which jobs to list, and in which order."""

    sort: (
        Annotated[
            str,
            doc(
                "Newest first, next due first or last ended first. Default: as the statuses suggest.",
                enum=[one.value for one in Sort],
            ),
        ]
        | None
    ) = None
    count: Annotated[str, doc("`exact` also counts the jobs that match, up to 100,000.", enum=["exact"])] | None = None
    limit: Annotated[int, doc("How many.", minimum=1, maximum=MOST_PER_PAGE)] = 50
    cursor: Annotated[str, doc("The nextCursor of the previous page.")] | None = None
    fields: _Fields = []

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.find`."""
        if self.count not in (None, "exact"):
            raise Invalid("count", "must be exact")
        page = {"limit": self.limit, "after": self.cursor, "fields": _separated(self.fields)}
        return {"filter": self.filter(), "sort": self.sort, **page}


class ActionRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What to do to all jobs that match a filter; `all` must be true if the filter is empty."""

    action: Annotated[str, doc("What to do to each job.", enum=[one.value for one in Action])]
    filter: Annotated[WhichJobs, doc("Which jobs, as in a list.")] | None = None
    scheduled_at: (
        Annotated[
            datetime,
            doc("The new time of the jobs, for reschedule; of the first one, for spread and retry (default: now)."),
        ]
        | None
    ) = None
    priority: _Priority | None = None
    over: Annotated[int, _ms("How long the jobs are spread over, for spread and retry")] | None = None
    all: Annotated[bool, doc("Select all jobs that the action takes; required if there is no filter.")] | None = None
    dry_run: Annotated[bool, doc("Only count the jobs.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Actions.start`."""
        filter = NO_FILTER if self.filter is None else self.filter.filter()
        if not self.all and filter == NO_FILTER:
            raise Invalid("filter", 'selects no jobs; give at least one of its fields, or "all": true')
        values = {
            "at": self.scheduled_at,
            "priority": self.priority,
            "over": _span(self.over),
            "dry_run": bool(self.dry_run),
        }
        return {"action": check_action(self.action), "filter": filter, **values}


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events to hear. An event must match all that is given; events of queues have no type, tag or job."""

    queue: Annotated[str, doc("Only of this queue.")] | None = None
    type: Annotated[str, doc("Only of jobs of this type.")] | None = None
    tag: Annotated[str, doc("Only of jobs with this tag.")] | None = None
    job: Annotated[str, doc("Only of the job with this id.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.events`."""
        return {"queue": self.queue, "type": self.type, "tag": self.tag, "job": self.job}


class _WhichDeadLetters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The filters of dead letters; a job must match all of them."""

    queue: Annotated[str, doc("Only this queue.")] | None = None
    type: Annotated[str, doc("Only this type.")] | None = None
    tag: Annotated[str, doc("Only with this tag.")] | None = None
    older_than: Annotated[int, _ms("Only jobs that failed at least this long ago")] | None = None

    def filters(self) -> dict[str, Any]:
        return {"queue": self.queue, "type": self.type, "tag": self.tag, "older_than": _span(self.older_than)}


class DeadLettersQuery(_WhichDeadLetters, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which dead letters to list, the latest failure first."""

    limit: Annotated[int, doc("How many.", minimum=1, maximum=MOST_PER_PAGE)] = 50
    cursor: Annotated[str, doc("The nextCursor of the previous page.")] | None = None
    fields: _Fields = []

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.find`."""
        page = {"limit": self.limit, "after": self.cursor, "fields": _separated(self.fields)}
        return {**self.filters(), "status": [Status.FAILED], **page}


class DeadLettersRequest(_WhichDeadLetters, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which dead letters to act on; `all` must be true if there is no filter."""

    all: Annotated[bool, doc("Select every dead letter; required if there is no filter.")] | None = None
    limit: Annotated[int, doc("At most this many jobs, newest first.", minimum=1, maximum=MOST_DEAD)] | None = None
    dry_run: Annotated[bool, doc("Only count the jobs.")] | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.retry_many` and `Client.delete_many`."""
        limit = USUAL_DEAD if self.limit is None else self.limit
        if not self.all and set(self.filters().values()) == {None}:
            raise Invalid("body", 'selects no dead letters; give queue, type, tag or olderThan, or "all": true')
        if not 1 <= limit <= MOST_DEAD:
            raise Invalid("limit", f"must be from 1 to {MOST_DEAD}")
        return {**self.filters(), "limit": limit, "dry_run": bool(self.dry_run)}


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: Annotated[int, doc("Milliseconds.", minimum=0, maximum=LONGEST_WAIT // timedelta(milliseconds=1))] | None = None

    def span(self) -> timedelta:
        """Return how long to wait; `Client.wait` refuses a negative span."""
        wanted = USUAL_WAIT if self.timeout is None else as_span(self.timeout)
        if wanted > LONGEST_WAIT:
            raise Invalid("timeout", f"must be from 0 to {LONGEST_WAIT // timedelta(milliseconds=1)} milliseconds")
        return wanted


def _separated(given: list[str]) -> list[str]:
    """Split values that are repeated or separated by commas."""
    return [one for some in given for one in some.split(",")]


def _ms_of(value: timedelta | None) -> int | None:
    return None if value is None else span_ms(value)


def _span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else as_span(milliseconds)


def as_span(count: int) -> timedelta:
    """Convert to a span. A value too large for timedelta becomes one that the core refuses."""
    return timedelta(milliseconds=max(-1, min(count, _FAR)))


def _given(values: dict[str, Any], nullable: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a caller gave. Null is a value only for those that are `nullable`."""
    return {name: value for name, value in values.items() if value is not None} | {
        name: value for name, value in nullable.items() if value is not msgspec.UNSET
    }


def _refuse_empty(request: msgspec.Struct) -> None:
    """Refuse a request without any field; null counts only where it has a meaning."""
    if all(getattr(request, field.name) == field.default for field in msgspec.structs.fields(request)):
        raise Invalid("body", f"changes nothing; give at least one of {', '.join(request.__struct_encode_fields__)}")
