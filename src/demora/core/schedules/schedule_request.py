"""Requests to create or change a schedule. Python, HTTP and the command line use them, so all refuse the same."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import Invalid
from ..job import Priority
from ..payload import pack_object
from ..request import (
    check_at,
    check_flag,
    check_priority,
    check_queue,
    check_reason,
    check_retries,
    check_retry_delay,
    check_tags,
    check_timeout,
    check_type,
    check_webhook,
)
from ..spans import from_ms, say, span, timestamp, to_ms
from .cron import read_cron
from .schedule import SHORTEST_EVERY, Missed, Overlap, Schedule, next_fire
from .wall_clock import wall_clock

LONGEST_EVERY = timedelta(days=3660)
LONGEST_JITTER = timedelta(days=1)
LONGEST_LATE = timedelta(days=366)
MOST_MISSED_LIMIT = 1000
MOST_MOMENTS = 1000

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}")
_KINDS = ("cron", "every", "at")
_TIMING = {*_KINDS, "timezone", "start_at", "end_at"}
_Choice = TypeVar("_Choice", bound=Enum)


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a caller gives a schedule. A field that is not set keeps its value; in a new schedule it has its
    default."""

    type: str | UnsetType = UNSET
    payload: Any = UNSET
    cron: str | UnsetType = UNSET
    every: timedelta | str | UnsetType = UNSET
    at: Iterable[datetime] | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    priority: Priority | str | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    retry_delay: timedelta | str | UnsetType = UNSET
    timeout: timedelta | str | UnsetType | None = UNSET
    tags: Iterable[str] | UnsetType = UNSET
    webhook_url: str | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    start_at: datetime | UnsetType | None = UNSET
    end_at: datetime | UnsetType | None = UNSET
    jitter: timedelta | str | UnsetType = UNSET
    overlap: Overlap | str | UnsetType = UNSET
    missed: Missed | str | UnsetType = UNSET
    missed_limit: int | UnsetType = UNSET
    late_limit: timedelta | str | UnsetType = UNSET


def make_schedule(name: str, request: ScheduleRequest, *, now: datetime) -> Schedule:
    """Return a checked schedule to be stored. `Invalid` names the field, says what is wrong and what would be right."""
    fields = _checked(request, now)
    if "type" not in fields:
        raise Invalid("type", "is required: the type of the jobs to add, for instance 'report.build'")
    new = Schedule(name=check_schedule_name(name), recorded_at=from_ms(to_ms(now)), **{"payload": b"{}", **fields})
    return _fitting(new, now)


def change_schedule(schedule: Schedule, request: ScheduleRequest, *, now: datetime) -> Schedule:
    """Return the changed schedule, checked as a whole. Another of `cron`, `every` and `at` replaces the one before."""
    fields = _checked(request, now)
    if any(kind in fields for kind in _KINDS):
        fields = dict.fromkeys(_KINDS) | fields
    if fields.get("enabled"):
        fields = {"reason": None, **fields}
    changed = msgspec.structs.replace(schedule, **fields)
    return _fitting(changed, now) if _TIMING & fields.keys() else changed


def is_schedule_name(name: str) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_schedule_name(name: str) -> str:
    if not is_schedule_name(name):
        raise Invalid(
            "name",
            "a schedule is named with 1 to 128 letters, digits and . _ : - and begins with a letter, digit or _, "
            "for instance 'nightly-report'",
        )
    return name


def _checked(request: ScheduleRequest, now: datetime) -> dict[str, Any]:
    """Return the fields that the request sets, each of them checked alone."""
    given = {name: value for name in request.__struct_fields__ if (value := getattr(request, name)) is not UNSET}
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) > 1:
        raise Invalid(kinds[1], f"give one of cron, every and at, not {' and '.join(kinds)}")
    return {name: _check(name, value, now) for name, value in given.items()}


def _check(name: str, value: Any, now: datetime) -> Any:
    if value is None and name in ("timeout", "webhook_url", "reason", "start_at", "end_at"):
        return None
    match name:
        case "cron":
            read_cron(value)
            return " ".join(value.split())
        case "every":
            return _every(value)
        case "at":
            return _moments(value, now)
        case "timezone":
            wall_clock(value)
            return value
        case "start_at" | "end_at":
            return from_ms(to_ms(check_at(value, now, name)))
        case "jitter":
            return span(value, name, most=LONGEST_JITTER)
        case "late_limit":
            return span(value, name, most=LONGEST_LATE)
        case "overlap":
            return _choice(Overlap, value, name)
        case "missed":
            return _choice(Missed, value, name)
        case "missed_limit":
            return _missed_limit(value)
        case "payload":
            return pack_object(value, name)
        case "enabled":
            return check_flag(value, name)
        case _:
            return _OF_JOBS[name](value)


_OF_JOBS: dict[str, Any] = {
    "type": check_type,
    "queue": check_queue,
    "priority": check_priority,
    "max_retries": check_retries,
    "retry_delay": check_retry_delay,
    "timeout": check_timeout,
    "tags": check_tags,
    "webhook_url": check_webhook,
    "reason": check_reason,
}


def _every(value: timedelta | str) -> timedelta:
    every = span(value, "every", most=LONGEST_EVERY)
    if every < SHORTEST_EVERY:
        raise Invalid("every", f"must be at least {say(SHORTEST_EVERY)}, for instance '90s' or '1h'")
    return every


def _moments(value: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    if isinstance(value, str | datetime) or not isinstance(value, Iterable):
        raise Invalid("at", "must be a list of times with a zone, for instance ['2030-01-01T09:00:00Z']")
    moments = sorted({from_ms(to_ms(check_at(at, now, f"at[{n}]"))) for n, at in enumerate(value)})
    if not 1 <= len(moments) <= MOST_MOMENTS:
        raise Invalid("at", f"must have 1 to {MOST_MOMENTS} times")
    return tuple(moments)


def _choice(kind: type[_Choice], value: Any, field: str) -> _Choice:
    if isinstance(value, kind):
        return value
    names = [one.value for one in kind]
    if value not in names:
        raise Invalid(field, f"must be one of {', '.join(names)}")
    return kind(value)


def _missed_limit(value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_MISSED_LIMIT:
        raise Invalid("missed_limit", f"must be a whole number from 1 to {MOST_MISSED_LIMIT}")
    return value


def _fitting(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule if its fields fit together and it fires at some time after now."""
    kinds = [kind for kind in _KINDS if getattr(schedule, kind) is not None]
    if not kinds:
        raise Invalid("cron", "give one of cron ('0 3 * * *'), every ('90s') and at (a list of times)")
    start, end = schedule.start_at, schedule.end_at
    if end is not None and end <= now:
        later = f"a later time, for instance {_soon(now)}"
        raise Invalid("end_at", f"{timestamp(end)} is past; give {later}, or none for a schedule without an end")
    if end is not None and start is not None and end <= start:
        raise Invalid("end_at", f"must be after start_at, {timestamp(start)}; for instance {_soon(start)}")
    if next_fire(schedule, now) is None:
        raise Invalid(kinds[0], "the schedule would never fire: " + _why_never(schedule, now))
    return schedule


def _soon(at: datetime) -> str:
    """Return a time after this one, as an example."""
    return timestamp(at.replace(minute=0, second=0, microsecond=0) + timedelta(days=30))


def _why_never(schedule: Schedule, now: datetime) -> str:
    if schedule.start_at is None and schedule.end_at is None:
        return f"give at least one time that is not past, for instance {_soon(now)}"
    first = "now" if schedule.start_at is None else timestamp(schedule.start_at)
    last = "its last time" if schedule.end_at is None else timestamp(schedule.end_at)
    return f"it has no time from {first} to {last}"
