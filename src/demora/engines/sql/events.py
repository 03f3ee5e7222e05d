"""Rows as events show them, the same on both engines."""

from collections.abc import Callable, Sequence
from typing import Any

from ...core.events import Event, EventJob, EventKind
from ...core.spans import from_ms
from ...core.states import Status
from . import columns
from .paces import pace_of


def event_job(row: Sequence[Any], id_of: Callable[[Any], str]) -> EventJob:
    """The columns of the block `event_columns`."""
    id, name, type, queue, status, tags, attempt, token, due_at, moment, worker_id, progress, message, error = row
    return EventJob(
        id_of(id),
        name or type,
        type,
        queue,
        Status(status),
        columns.tags(tags),
        attempt,
        token,
        from_ms(due_at),
        columns.time(moment),
        worker_id,
        progress,
        message,
        error,
    )


def paused(queue: str, paused_at: int, reason: str | None, by: str | None) -> Event:
    return Event(EventKind.PAUSED, at=from_ms(paused_at), queue=queue, by=by, reason=reason)


def paced(queue: str, at: int, by: str, pace: str | None, follows: int) -> Event:
    new = None if pace is None else pace_of(pace)
    return Event(EventKind.PACE, at=from_ms(at), queue=queue, by=by, pace=new, follows=bool(follows))
