"""Parked jobs: which of their types no live worker knows, and when such a job fails.

Times are milliseconds, as the engines store them.
"""

from collections.abc import Iterable, Sequence

import msgspec

from .spans import span_ms
from .verdict import NO_HANDLER_GRACE
from .workers import WorkerRecord, knows_type, serves

_GRACE = span_ms(NO_HANDLER_GRACE)


class ParkedType(msgspec.Struct, frozen=True):
    """A type that claims have parked jobs of in a queue. `unknown_since` is None while a live worker there knows it, or none
    is there."""

    type: str
    queue: str
    unknown_since: int | None


class Judged(msgspec.Struct, frozen=True):
    """What the workers of today mean for the parked types: those whose `unknown_since` has changed, those to forget because
    every worker knows them, and those that no worker knows, by type and queue, with the time since when."""

    changed: list[ParkedType]
    forgotten: list[ParkedType]
    unknown: dict[tuple[str, str], int]


def judge(parked: Iterable[ParkedType], workers: Sequence[WorkerRecord], now: int) -> Judged:
    """Compare the parked types with the types that live workers know."""
    live = [worker for worker in workers if worker.live]
    judged = Judged([], [], {})
    for one in parked:
        known = knows_type(live, one.queue, one.type)
        since = None if known is not False else one.unknown_since if one.unknown_since is not None else now
        if since != one.unknown_since:
            judged.changed.append(msgspec.structs.replace(one, unknown_since=since))
        if since is not None:
            judged.unknown[one.type, one.queue] = since
        if known and all(one.type in worker.types for worker in live if serves(worker, one.queue)):
            judged.forgotten.append(one)
    return judged


def fails_at(unknown_since: int, due_at: int) -> int:
    """Return when a parked job fails: when it has been due, and its type unknown, for the whole grace."""
    return max(unknown_since, due_at) + _GRACE


def failing_until(now: int) -> int:
    """Return the latest due time of the parked jobs that fail now, if their type has been unknown for long enough."""
    return now - _GRACE
