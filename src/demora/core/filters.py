"""Which jobs a list or a bulk action selects, and the text in which people write it.

    status:failed,cancelled queue:mail type:email.* priority:high tag:vip schedule:nightly error:Timeout created:<2h "no"

Words are separated by spaces; a value with spaces stands in double quotes. A word without a name and a colon before it
is searched for in names and errors. `waiting` and `running` are groups of statuses.

A time is a range. With spans, `<2h` means within two hours of now, `>2h` further away than that, and `2h..1d` between the
two. A span counts back from now; for `due` it counts ahead. With dates or times, `>2026-03-01` means from then on,
`<2026-03-01T12:00:00Z` before then, and `2026-03-01..2026-04-01` from the first until before the second.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from ..errors import Invalid, did_you_mean
from .job import Priority
from .request import MOST_NAME, check_priority, check_queue, check_status, check_tag, check_tags, check_type
from .schedules.schedule_request import is_schedule_name
from .spans import moment, span, timestamp
from .states import ENDED, WAITING, Status

MOST_TEXT = 1000  # characters of a search
GROUPS = {"waiting": WAITING, "running": frozenset({Status.PROCESSING})}  # what a search may write besides statuses


class Sort(Enum):
    """The order of a list: newest first by `created`, next first by `due`, last ended first by `ended`."""

    CREATED = "created"
    DUE = "due"
    ENDED = "ended"


class TimeRange(msgspec.Struct, frozen=True):
    """The times from `since` on and before `until`; None leaves that side open."""

    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None


ALWAYS = TimeRange()


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs are meant. A job must match all parts that are set, and carry all `tags`.

    A `type` that ends in `*` means all types that begin so. `error` is the class of the job's error: its text before the
    first colon, cut to 200 characters. `text` occurs in the name or in the error, in upper or lower case. A job that has not
    ended matches no range of `ended`, and one that does not wait matches none of `due`. `schedule` is the name of the
    schedule that added the job.
    """

    statuses: frozenset[Status] = frozenset()
    queue: str | None = None
    type: str | None = None
    priorities: frozenset[Priority] = frozenset()
    tags: tuple[str, ...] = ()
    error: str | None = None
    text: str | None = None
    created: TimeRange = ALWAYS
    due: TimeRange = ALWAYS
    ended: TimeRange = ALWAYS
    schedule: str | None = None

    @property
    def exact_type(self) -> str | None:
        return None if self.type is None or self.type.endswith("*") else self.type

    @property
    def type_prefix(self) -> str | None:
        return self.type[:-1] if self.type is not None and self.type.endswith("*") else None

    def checked(self) -> "JobFilter":
        """Return the filter with what it implies: a range of `due` means waiting jobs, one of `ended` ended ones. `Invalid`
        names the first part that is malformed or that contradicts another one."""
        if self.queue is not None:
            check_queue(self.queue)
        if self.type is not None and self.type != "*":
            check_type(self.type.removesuffix("*"))
        check_tags(self.tags)
        if self.schedule is not None and not is_schedule_name(self.schedule):
            raise Invalid("schedule", "must be the name of a schedule, for instance 'nightly-report'")
        for field in ("error", "text"):
            _check_text(field, getattr(self, field))
        for field in ("created", "due", "ended"):
            _check_range(field, getattr(self, field))
        statuses = self.statuses
        for implied, field, given in ((WAITING, "due", self.due), (ENDED, "ended", self.ended)):
            if given:
                statuses = _implied(statuses, implied, field)
        return msgspec.structs.replace(self, statuses=statuses)


NO_FILTER = JobFilter()


def sort_of(filter: JobFilter, asked: Sort | str | None = None) -> tuple[JobFilter, Sort]:
    """Return the order of a list, and the filter with the states that the order implies.

    Unless another one is asked for, waiting jobs are sorted by `due`, ended ones by `ended`, and all others by `created`. So
    are jobs with a tag or of a schedule.
    """
    if asked is None and (filter.tags or filter.schedule is not None):
        return filter, Sort.CREATED
    if asked is None:
        waits, ended = (bool(filter.statuses) and filter.statuses <= some for some in (WAITING, ENDED))
        return filter, Sort.DUE if waits else Sort.ENDED if ended else Sort.CREATED
    if not isinstance(asked, Sort):
        asked = _check_sort(asked)
    if asked is Sort.CREATED:
        return filter, asked
    implied = WAITING if asked is Sort.DUE else ENDED
    return msgspec.structs.replace(filter, statuses=_implied(filter.statuses, implied, "sort")), asked


def parse_filter(text: str, now: datetime) -> JobFilter:
    """Return the filter that a search means at the time `now`. `Invalid` says which word it cannot read."""
    if len(text) > MOST_TEXT:
        raise Invalid("search", f"must be at most {MOST_TEXT} characters")
    found: dict[str, Any] = {}
    words: list[str] = []
    for name, value in _words(text):
        if name is None:
            words.append(value)
        else:
            _NAMES[name](found, value, now)
    if words:
        found["text"] = " ".join(words)
    return JobFilter(**found).checked()


def filter_text(filter: JobFilter) -> str:
    """Write a filter as `parse_filter` reads it; times are absolute."""
    parts = [("status", ",".join(status.name.lower() for status in sorted(filter.statuses)))]
    parts += [("queue", filter.queue or ""), ("type", filter.type or "")]
    parts += [("priority", ",".join(priority.name.lower() for priority in sorted(filter.priorities)))]
    parts += [("tag", tag) for tag in filter.tags]
    parts += [("schedule", filter.schedule or ""), ("error", filter.error or "")]
    parts += [(field, _range_text(getattr(filter, field))) for field in ("created", "due", "ended")]
    parts += [("text", filter.text or "")]
    return " ".join(f"{name}:{_quoted(value)}" for name, value in parts if value)


# Words


def _words(text: str) -> Iterator[tuple[str | None, str]]:
    """The names and values of a search; None is the name of a word without one."""
    rest = text.strip()
    while rest:
        name, colon, after = rest.partition(":")
        if colon and name.isascii() and name.isalpha():
            if name not in _NAMES:
                known = did_you_mean(name, _NAMES) or f"; the filters are {', '.join(_NAMES)}."
                raise Invalid("search", f"{name!r} is not a filter{known} Put text with a colon into quotes")
        else:
            name, after = "", rest
        value, rest = _value(after)
        if not value:
            raise Invalid("search", f"{name + ':' if name else 'a word'} has no value")
        yield name or None, value


def _value(text: str) -> tuple[str, str]:
    """The value that a text begins with, and the rest."""
    if not text.startswith('"'):
        value, _, rest = text.partition(" ")
        return value, rest.lstrip()
    read: list[str] = []
    letters = iter(enumerate(text[1:], 1))
    for place, letter in letters:
        if letter == '"':
            return "".join(read), text[place + 1 :].lstrip()
        read.append(next(letters, (0, ""))[1] if letter == "\\" else letter)
    raise Invalid("search", "a quotation mark is not closed")


def _quoted(value: str) -> str:
    if value and not any(letter in '"\\' or letter.isspace() for letter in value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Values


Reader = Callable[[dict[str, Any], str, datetime], None]


def _several(field: str, check: Callable[[str], Any]) -> Reader:
    def read(found: dict[str, Any], value: str, _: datetime) -> None:
        found[field] = found.get(field, frozenset()) | {check(one.upper()) for one in value.split(",")}

    return read


def _statuses(found: dict[str, Any], value: str, _: datetime) -> None:
    words = value.split(",")
    meant = [GROUPS.get(word.lower()) or {check_status(word.upper())} for word in words]
    found["statuses"] = found.get("statuses", frozenset()).union(*meant)


def _once(field: str) -> Reader:
    def read(found: dict[str, Any], value: str, _: datetime) -> None:
        if field in found:
            raise Invalid("search", f"{field} can be given once only")
        found[field] = value

    return read


def _tag(found: dict[str, Any], value: str, _: datetime) -> None:
    found["tags"] = (*found.get("tags", ()), check_tag(value))


def _times(field: str) -> Reader:
    def read(found: dict[str, Any], value: str, now: datetime) -> None:
        found[field] = _both(field, found.get(field, ALWAYS), _range(field, value, now))

    return read


_NAMES: dict[str, Reader] = {
    "status": _statuses,
    "queue": _once("queue"),
    "type": _once("type"),
    "priority": _several("priorities", check_priority),
    "tag": _tag,
    "schedule": _once("schedule"),
    "error": _once("error"),
    "created": _times("created"),
    "due": _times("due"),
    "ended": _times("ended"),
    "text": _once("text"),
}


# Ranges of time


def _range(field: str, value: str, now: datetime) -> TimeRange:
    if ".." in value:
        one, other = (_time(field, part, now) for part in value.split("..", 1))
        return TimeRange(min(one[0], other[0]), max(one[0], other[0]))
    if value[:1] not in ("<", ">"):
        raise Invalid(field, "is a range of time: <2h, >2h, 2h..1d, >2026-03-01 or 2026-03-01..2026-04-01")
    at, is_span = _time(field, value[1:], now)
    later = (value[0] == ">") != (is_span and field != "due")  # a span counts back, except for what is to come
    if later:
        return TimeRange(since=at)
    return TimeRange(until=at)


def _time(field: str, text: str, now: datetime) -> tuple[datetime, bool]:
    """The time that a text means, and whether it is a span from now."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        distance: timedelta = span(text, field)
        return now + distance if field == "due" else now - distance, True
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read, False


def _both(field: str, one: TimeRange, other: TimeRange) -> TimeRange:
    """The range of a name that is given twice, once for each side."""
    if (one.since and other.since) or (one.until and other.until):
        raise Invalid("search", f"{field} has two values for the same side")
    return TimeRange(one.since or other.since, one.until or other.until)


def _range_text(times: TimeRange) -> str:
    since, until = (None if at is None else timestamp(at) for at in (times.since, times.until))
    if since and until:
        return f"{since}..{until}"
    return f">{since}" if since else f"<{until}" if until else ""


# Checks


def _check_text(field: str, text: Any) -> None:
    if text is not None and (not isinstance(text, str) or not 1 <= len(text) <= MOST_NAME or "\0" in text):
        raise Invalid(field, f"must be text of 1 to {MOST_NAME} characters, none of them zero")


def _check_range(field: str, times: TimeRange) -> None:
    for at in (times.since, times.until):
        if at is not None:
            _check_moment(moment(at, field), field)
    if times.since and times.until and times.since > times.until:
        raise Invalid(field, "begins after its end")


def _check_moment(at: datetime, field: str) -> None:
    try:
        at.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, "is before the year 1 or after the year 9999 in UTC") from None


def _check_sort(sort: str) -> Sort:
    try:
        return Sort(sort)
    except ValueError:
        raise Invalid("sort", f"must be one of {', '.join(one.value for one in Sort)}") from None


def _implied(statuses: Iterable[Status], implied: frozenset[Status], field: str) -> frozenset[Status]:
    given = frozenset(statuses)
    if not given <= implied:
        raise Invalid(field, f"is for jobs that are {' or '.join(status.name for status in sorted(implied))}")
    return given or implied
