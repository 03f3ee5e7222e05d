"""Schedules in code: what becomes of them when a process of the application starts.

A definition is all that the code of one application says about its schedules. It belongs to the application's name. What a
person changed since is kept, field by field: the fields in which the stored schedule differs from the last definition.

- A name that a person or another application took stays theirs.
- While several versions of the application run, the highest one wins; where a version is not named, the last start wins. A
  version that no live process runs any more does not count, so that going back to an earlier one takes effect.
- A schedule that the code no longer names is retired, unless another live process of the application still registers it.
- A schedule whose last time has passed is not added. If it is stored, it stays: its last fire time may still have to fire,
  and its records tell what became of the others.
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum

import msgspec

from .schedule import Schedule

_TIMING = frozenset({"cron", "every", "at", "timezone"})  # these stay together
_PAUSE = frozenset({"enabled", "reason"})
_FIRE_TIMES = _TIMING | {"start_at", "end_at", "enabled"}  # what decides which fire times there are
_OF_THE_ROW = frozenset({"name", "recorded_at"})
_PART = re.compile(r"[0-9]+|[^0-9]+")


class Definition(msgspec.Struct, frozen=True):
    """All schedules in the code of an application, as one process loaded it. `over` are those whose last time has passed."""

    application: str
    process_id: str
    schedules: tuple[Schedule, ...]
    app_version: str | None = None
    over: tuple[Schedule, ...] = ()

    @property
    def names(self) -> list[str]:
        return [schedule.name for schedule in (*self.schedules, *self.over)]


class Known(msgspec.Struct, frozen=True):
    """A stored schedule. `defined`, `application` and `app_version` are empty if no code has defined it."""

    schedule: Schedule
    defined: Schedule | None = None
    application: str | None = None
    app_version: str | None = None


class Registered(msgspec.Struct, frozen=True):
    """What a live process of the application registers: the names in its code, and its version."""

    names: tuple[str, ...]
    app_version: str | None = None


class Result(Enum):
    """What became of a name."""

    ADDED = "added"
    UPDATED = "updated"
    SAME = "same"
    OVER = "over"  # its last time has passed, and it is not stored
    TAKEN = "taken"  # by a person, or by another application
    OLDER = "older"  # a newer version has defined it, and live processes run a newer one: define again later
    RETIRED = "retired"  # the code no longer names it, and it is to be removed
    PENDING = "pending"  # the same, but another live process still registers it: define again later


class Defined(msgspec.Struct, frozen=True):
    """What became of a name. `known` is what to store, None if nothing is to be written; a retired one is to be removed.
    `kept` are the fields that a person changed. With `restarts` the fire times are different from before, and the progress
    begins anew. Otherwise the progress stays, so that fire times that passed during a deploy are not lost."""

    name: str
    result: Result
    known: Known | None = None
    kept: tuple[str, ...] = ()
    restarts: bool = False


def bring_in(definition: Definition, stored: Mapping[str, Known], elsewhere: Collection[Registered]) -> list[Defined]:
    """Return what becomes of every name that the code defines, or defined before.

    `stored` has the schedules of these names and all others of the application. `elsewhere` is what the other live processes
    of the application register.
    """
    newest = not any(is_older(definition.app_version, one.app_version) for one in elsewhere)
    found = [_bring_in(definition, schedule, stored.get(schedule.name), newest) for schedule in definition.schedules]
    found += [_bring_in_over(definition, schedule, stored.get(schedule.name), newest) for schedule in definition.over]
    named = {*definition.names}
    gone = [
        name for name, known in sorted(stored.items()) if known.application == definition.application and name not in named
    ]
    registered = {name for one in elsewhere for name in one.names}
    return found + [_retire(definition, name, stored[name], newest, name in registered) for name in gone]


def changed_fields(schedule: Schedule, defined: Schedule) -> tuple[str, ...]:
    """Return the fields in which a schedule differs from its definition. Fields that belong together are named together."""
    names = [name for name in schedule.__struct_fields__ if name not in _OF_THE_ROW]
    differ = {name for name in names if getattr(schedule, name) != getattr(defined, name)}
    for group in (_TIMING, _PAUSE):
        if differ & group:
            differ |= group
    return tuple(name for name in names if name in differ)


def is_older(version: str | None, than: str | None) -> bool:
    """Whether a version goes before another: `1.9` before `1.10`. A version without a name is never older."""
    return version is not None and than is not None and _rank(version) < _rank(than)


def _bring_in(definition: Definition, schedule: Schedule, known: Known | None, newest: bool) -> Defined:
    if known is None:
        new = Known(schedule, schedule, definition.application, definition.app_version)
        return Defined(schedule.name, Result.ADDED, new, restarts=True)
    if known.application != definition.application or known.defined is None:
        return Defined(schedule.name, Result.TAKEN)
    if not newest and is_older(definition.app_version, known.app_version):
        return Defined(schedule.name, Result.OLDER)
    kept = changed_fields(known.schedule, known.defined)
    now = _recorded_as(schedule, known)
    merged = msgspec.structs.replace(now, **{name: getattr(known.schedule, name) for name in kept})
    after = Known(merged, now, definition.application, definition.app_version)
    if after == known:
        return Defined(schedule.name, Result.SAME, kept=kept)
    restarts = bool(_FIRE_TIMES & set(changed_fields(merged, known.schedule)))
    return Defined(schedule.name, Result.UPDATED, after, kept, restarts)


def _bring_in_over(definition: Definition, schedule: Schedule, known: Known | None, newest: bool) -> Defined:
    return Defined(schedule.name, Result.OVER) if known is None else _bring_in(definition, schedule, known, newest)


def _retire(definition: Definition, name: str, known: Known, newest: bool, registered: bool) -> Defined:
    if not newest and is_older(definition.app_version, known.app_version):
        return Defined(name, Result.OLDER)
    return Defined(name, Result.PENDING if registered else Result.RETIRED)


def _recorded_as(schedule: Schedule, known: Known) -> Schedule:
    """Return the schedule as it was first recorded, so that an interval keeps its beat over deploys."""
    return msgspec.structs.replace(schedule, recorded_at=known.schedule.recorded_at)


def _rank(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions: numbers in them by value."""
    return [
        (1, int(part), "") if part[0].isdecimal() and part.isascii() else (0, 0, part) for part in _PART.findall(version)
    ]
