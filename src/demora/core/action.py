"""Actions: one verb on all jobs that match a filter, carried out by a job that demora adds itself. Also lists all job types
and queues of demora's own: actions, and the deliveries of webhooks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from ..errors import Invalid
from .filters import JobFilter, TimeRange, filter_text, parse_filter
from .job import NewJob, Priority
from .outbound import webhook
from .spans import MILLISECOND
from .states import ENDED, RETRYABLE, WAITING, Status

TYPE = "demora.action"
QUEUE = "demora.actions"
RETRIES = 10
RETRY_DELAY = timedelta(seconds=5)
MOST_IDS = 1000  # jobs that an action may name
_TAIL = 12  # characters of an id that tell the jobs of a page apart: they are random
_DEAD = frozenset({Status.FAILED})


class Action(Enum):
    """What an action does to each job."""

    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    RESCHEDULE = "reschedule"
    REPRIORITISE = "reprioritise"
    SPREAD = "spread"

    def checked(self, filter: JobFilter) -> JobFilter:
        """Return the filter with the states that the action takes if it names none. `Invalid` if it names others."""
        allowed, usual = _TAKES[self]
        if not filter.statuses <= allowed:
            raise Invalid("status", f"{self.value} takes jobs that are {' or '.join(one.name for one in sorted(allowed))}")
        return filter if filter.statuses else msgspec.structs.replace(filter, statuses=usual)

    def narrowed(self, filter: JobFilter, asked_at: datetime) -> JobFilter:
        """Return the filter of an action that was asked for at this time: it leaves out jobs that were added later and, for
        a retry, jobs that ended later. So a run that begins again retries no job a second time."""
        until = asked_at + MILLISECOND  # times are whole milliseconds, and the last one counts
        filter = msgspec.structs.replace(filter, created=_before(filter.created, until))
        return msgspec.structs.replace(filter, ended=_before(filter.ended, until)) if self is Action.RETRY else filter


# The states that an action can take jobs from, and those that it takes if the filter names none.
_TAKES = {
    Action.CANCEL: (WAITING, WAITING),
    Action.RETRY: (RETRYABLE, _DEAD),
    Action.DELETE: (ENDED, _DEAD),
    Action.RESCHEDULE: (WAITING, WAITING),
    Action.REPRIORITISE: (WAITING, WAITING),
    Action.SPREAD: (WAITING, WAITING),
}
_NEEDS = {Action.RESCHEDULE: "at", Action.REPRIORITISE: "priority", Action.SPREAD: "over"}
_ALLOWED = {"at": {Action.RESCHEDULE, Action.SPREAD, Action.RETRY}, "priority": {Action.REPRIORITISE}}
_ALLOWED["over"] = {Action.SPREAD, Action.RETRY}


class ActionProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an action has got: the counts of what it has done, and the cursor `after` which it continues.

    It is stored before each page of jobs, with the ends of their ids in `trying` and the cursor behind them in `next`. A run
    that continues cannot know whether that page was done. `total` is the number of jobs to spread.
    """

    matched: int = 0
    done: int = 0
    skipped: int = 0
    after: str | None = None
    trying: str = ""
    next: str | None = None
    total: int | None = None
    ended: bool = False

    def with_page(self, ids: Sequence[str], next: str | None) -> "ActionProgress":
        """Return the progress to store before these jobs are taken."""
        return msgspec.structs.replace(self, trying="".join(id[-_TAIL:] for id in ids), next=next)

    @property
    def size(self) -> int:
        """How many jobs the page has."""
        return len(self.trying) // _TAIL

    def number_of(self, id: str) -> int | None:
        """Return the number of a job among all that match, counted from the newest; None if the page does not have it."""
        tails = [self.trying[at : at + _TAIL] for at in range(0, len(self.trying), _TAIL)]
        return self.matched + tails.index(id[-_TAIL:]) if id[-_TAIL:] in tails else None


class ActionOrder(msgspec.Struct, frozen=True):
    """The payload of an action's job. `filter` is a search with absolute times, and `by` the caller. `at` is the new time of
    the jobs, or of the first one if they are spread `over` this many milliseconds, as retried ones can be too; `priority` is
    their new priority. With `ids` it takes only these of the jobs that match."""

    action: Action
    filter: str
    dry_run: bool
    by: str
    at: datetime | None = None
    priority: str | None = None
    over: int | None = None
    ids: tuple[str, ...] = ()

    def checked(self) -> "ActionOrder":
        """Refuse a value that the action needs and lacks, or has and does not take."""
        if len(self.ids) > MOST_IDS:
            raise Invalid("ids", f"at most {MOST_IDS} are allowed")
        for field, allowed in _ALLOWED.items():
            given = getattr(self, field) is not None
            if given and self.action not in allowed:
                raise Invalid(field, f"{self.action.value} does not take it")
            if not given and _NEEDS.get(self.action) == field:
                raise Invalid(field, f"{self.action.value} needs it")
        return self


def check_action(action: Action | str) -> Action:
    try:
        return Action(action)
    except ValueError:
        raise Invalid("action", f"must be one of {', '.join(one.value for one in Action)}") from None


def search_for(action: Action, filter: JobFilter, now: datetime) -> str:
    """Return the filter of an action as text. `Invalid` if the action does not take such jobs, or if the text is too long to
    be read as a search."""
    search = filter_text(action.checked(filter))
    parse_filter(search, now)
    return search


def action_job(id: str, order: ActionOrder) -> NewJob:
    """Return the job that carries out an action."""
    meant = f"{len(order.ids):,} selected jobs" if order.ids else order.filter
    return NewJob(
        id=id,
        type=TYPE,
        name=f"{order.action.value} {meant}"[:200],
        queue=QUEUE,
        priority=Priority.NORMAL,
        payload=msgspec.json.encode(order.checked()),
        max_retries=RETRIES,
        retry_delay=RETRY_DELAY,
    )


def _before(times: TimeRange, until: datetime) -> TimeRange:
    return TimeRange(times.since, until if times.until is None else min(times.until, until))


# The job types and queues of demora's own. Callers add no jobs to them.

OWN_TYPES = (webhook.TYPE, TYPE)
OWN_QUEUES = (webhook.QUEUE, QUEUE)  # every worker serves them, and the pace of all queues leaves them out
RESUMED_TYPES = frozenset({TYPE})  # a run resumes from the message of the last one, so claims and retries keep that


def means_own(filter: JobFilter) -> bool:
    """Return whether a filter names jobs of demora's own, by their queue or type. Otherwise
    verbs on many jobs leave these alone: a caller that cancels everything means neither the action that does it nor the
    webhooks of the cancelled jobs."""
    return filter.queue in OWN_QUEUES or filter.exact_type in OWN_TYPES
