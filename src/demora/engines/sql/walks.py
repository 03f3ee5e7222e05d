"""How a search finds its jobs: which index it walks, and from where to where.

A walk reads jobs in the order of the list, and each job is then checked against the whole filter. The indexes are chosen
for the lists that people look at most: by state; by queue or type with a state; by tag; by the class of an error. For these,
nearly every job that is read matches. Any other filter may read many jobs that do not match, so a search limits its reads.
"""

import re
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from ...core.filters import Sort
from ...core.job import Job, Lane, Priority
from ...core.spans import MILLISECOND, to_ms
from ...core.states import WAITING, Status
from ...errors import Invalid
from ...store.jobs import Page, Query

FIRST, LAST = 0, 2**62  # before and after all times and row numbers
DISORDER = 5_000  # rows that may be between two jobs that were added at about the same time, in either order
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_CURSOR = re.compile(r"(\d{1,16})\.(\d{1,18})")


class Walk(Enum):
    """The index that a search walks. Each has its statement `walk_…` in `queries.sql`."""

    ALL = "all"
    CREATED = "created"
    PROCESSING = "processing"
    DEAD = "dead"
    OF_ERROR = "of_error"
    SCHEDULE = "schedule"
    TAG = "tag"
    ENDED_OF_QUEUE = "ended_of_queue"
    ENDED_OF_TYPE = "ended_of_type"
    DEAD_OF_ERROR = "dead_of_error"
    DUE_OF_QUEUE = "due_of_queue"
    DUE_OF_TYPE = "due_of_type"
    RETRYING = "retrying"

    @property
    def of_types(self) -> bool:
        return self in (Walk.ENDED_OF_TYPE, Walk.DUE_OF_TYPE)

    @property
    def by_id(self) -> bool:
        """Whether it reads jobs in the order of their ids, else by a time or by the numbers of their rows."""
        return self in (Walk.ALL, Walk.PROCESSING, Walk.DEAD, Walk.OF_ERROR, Walk.SCHEDULE, Walk.TAG)


def walk_of(query: Query) -> Walk:
    """Return the walk that reads the fewest jobs that do not match."""
    filter = query.filter
    if query.sort is Sort.ENDED:
        if filter.error is not None and filter.statuses == {Status.FAILED}:
            return Walk.DEAD_OF_ERROR
        return Walk.ENDED_OF_QUEUE if filter.type is None else Walk.ENDED_OF_TYPE
    if query.sort is Sort.DUE:
        if filter.type is not None:
            return Walk.DUE_OF_TYPE
        return Walk.RETRYING if filter.statuses == {Status.RETRYING} else Walk.DUE_OF_QUEUE
    if filter.error is not None and filter.statuses != {Status.PROCESSING}:
        return Walk.OF_ERROR
    if filter.schedule is not None:
        return Walk.SCHEDULE
    if filter.tags:
        return Walk.TAG
    narrow = {frozenset({Status.PROCESSING}): Walk.PROCESSING, frozenset({Status.FAILED}): Walk.DEAD}
    return narrow.get(filter.statuses, Walk.CREATED if filter.created else Walk.ALL)


_TYPES, _ENDED, _DUE = ("statuses", "type", "prefix"), ("ended_since", "ended_until"), ("due_since", "due_until")
# The parts of a query that are true of all jobs of a walk. A tag is checked again: the job may have lost it meanwhile.
_SURE: dict[Walk, tuple[str, ...]] = {
    Walk.PROCESSING: ("statuses",),
    Walk.DEAD: ("statuses",),
    Walk.OF_ERROR: ("error",),
    Walk.SCHEDULE: ("schedule",),
    Walk.ENDED_OF_QUEUE: ("statuses", "queue", *_ENDED),
    Walk.ENDED_OF_TYPE: (*_TYPES, *_ENDED),
    Walk.DEAD_OF_ERROR: ("statuses", "error", *_ENDED),
    Walk.DUE_OF_QUEUE: ("queue", *_DUE),
    Walk.DUE_OF_TYPE: (*_TYPES, *_DUE),
    Walk.RETRYING: ("statuses", "queue", *_DUE),
}
LANES_AND_RANKS = [(lane.value, rank.value) for lane in Lane for rank in Priority]


class ListPlace(NamedTuple):
    """The place of a job in a list: its time in milliseconds and the number of its row, or its id."""

    at: int
    row: int
    id: str

    def cursor(self, query: Query) -> str:
        return self.id if walk_of(query).by_id else f"{self.at}.{self.row}"


class WalkEnd(NamedTuple):
    """The places of the jobs that match, and where the walk stopped early, if it did."""

    found: list[ListPlace]
    stopped: ListPlace | None


def page_of(query: Query, jobs: list[Job], walked: WalkEnd) -> Page:
    """Return the page of a search: `jobs` are those of the first places that it found, as many as fit."""
    if len(jobs) < len(walked.found):
        return Page(jobs, walked.found[len(jobs) - 1].cursor(query))
    if walked.stopped is not None:
        return Page(jobs, walked.stopped.cursor(query), complete=False)
    return Page(jobs, None)


def place_bounds(query: Query) -> dict[str, int]:
    """The times between which a walk that is not by id reads, and the place after which it starts."""
    times = query.filter.due if query.sort is Sort.DUE else query.filter.ended
    start = (FIRST, FIRST - 1) if query.sort is Sort.DUE else (LAST, LAST)
    if query.after is not None:
        found = _CURSOR.fullmatch(query.after)
        if found is None:
            raise Invalid("after", "is the cursor of a list in another order")
        start = int(found[1]), int(found[2])
    return {
        "since": _ms(times.since, FIRST),
        "until": _ms(times.until, LAST),
        "at": start[0],
        "row": start[1],
    }


def id_bound(query: Query) -> str:
    """The id before which a walk by id reads."""
    if query.after is None:
        return LAST_ID
    if _CURSOR.fullmatch(query.after):
        raise Invalid("after", "is the cursor of a list in another order")
    return query.after


def row_bounds(first: int | None, last: int | None) -> dict[str, int]:
    """The rows between which a walk by rows reads: from the first job of the range of `created` to the first one after it,
    as a binary search finds them. It assumes that later rows hold later jobs; `DISORDER` allows for some that do not."""
    return {
        "first_row": FIRST if first is None else max(first - DISORDER, FIRST),
        "last_row": LAST if last is None else last + DISORDER,
    }


def conditions(query: Query) -> dict[str, Any]:
    """The parts of a query that each job is checked against, with their values: each is the block `match_…`. A part that is
    true of all jobs of the walk is left out."""
    filter, walk = query.filter, walk_of(query)
    sure = _SURE.get(walk, ())
    if walk is Walk.DUE_OF_QUEUE and filter.statuses >= WAITING:
        sure = (*sure, "statuses")
    values = {
        "statuses": sorted(filter.statuses) or None,
        "queue": filter.queue,
        "type": filter.exact_type,
        "prefix": filter.type_prefix or None,
        "priorities": sorted(filter.priorities) or None,
        "tags": list(filter.tags) or None,
        "error": filter.error,
        "text": _lower(filter.text),
        "created_since": _ms(filter.created.since, None),
        "created_until": _ms(filter.created.until, None),
        "due_since": _ms(filter.due.since, None),
        "due_until": _ms(filter.due.until, None),
        "ended_since": _ms(filter.ended.since, None),
        "ended_until": _ms(filter.ended.until, None),
        "schedule": filter.schedule,
        "older_than": None if query.older_than is None else -(-query.older_than // MILLISECOND),
    }
    return {name: value for name, value in values.items() if value is not None and name not in sure}


def _lower(text: str | None) -> str | None:
    """The text with its ASCII letters in lower case, as the databases compare it."""
    return None if text is None else "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _ms(at: datetime | None, otherwise: Any) -> Any:
    return otherwise if at is None else to_ms(at)
