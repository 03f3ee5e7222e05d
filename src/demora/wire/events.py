"""Events on the wire."""

import msgspec

from ..core.events import Event, EventJob, EventKind
from .queues import PaceRuleView, pace_rule_view, read_pace_rule
from .shape import Shape


class EventJobView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job in an event, without its payload and its result."""

    id: str
    name: str
    type: str
    queue: str
    status: str
    attempt: int
    tags: list[str]
    due_at: str
    worker_id: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    error: str | None = None


class EventView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An event. A field that says nothing about its kind is left out. `pace` is null if the pace was taken off."""

    event: str
    at: str | None = None
    queue: str | None = None
    job: EventJobView | None = None
    pace: PaceRuleView | msgspec.UnsetType | None = msgspec.UNSET
    by: str | None = None
    reason: str | None = None
    position: str | None = None


_JOB = Shape(EventJob, EventJobView)
_EVENT = Shape(Event, EventView, event="kind")


def event_view(event: Event, *, position: bool = False) -> EventView:
    """Return an event as it looks on the wire, with its position if the transport does not carry that itself."""
    pace = None if event.pace is None else pace_rule_view(event.pace)
    return _EVENT.write(
        event,
        job=None if event.job is None else _JOB.write(event.job),
        pace=pace if event.kind is EventKind.PACE else msgspec.UNSET,
        position=event.position if position else None,
    )


def read_event(view: EventView, position: str) -> Event:
    """Return the event of a view, at its position. The view leaves out the token of a job, so that is 0."""
    pace = view.pace
    return _EVENT.read(
        view,
        job=None if view.job is None else _JOB.read(view.job, token=0),
        pace=None if pace is None or isinstance(pace, msgspec.UnsetType) else read_pace_rule(pace),
        position=position,
    )
