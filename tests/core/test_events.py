"""Which events a listener hears, and how two looks at the database become events."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from demora.core.events import (
    Event,
    EventFilter,
    EventJob,
    EventKind,
    pause_events,
    placed,
    running_events,
)
from demora.core.states import Status

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
JOB = EventJob("1", "a", "a.b", "mail", Status.QUEUED, ("red", "blue"), 0, 0, NOON)
OF_JOB = Event(EventKind.ADDED, queue="mail", job=JOB)
OF_QUEUE = Event(EventKind.PAUSED, queue="mail")
RESET = Event(EventKind.RESET)


@pytest.mark.parametrize(
    "filter",
    [
        EventFilter(),
        EventFilter(queue="mail"),
        EventFilter(type="a.b"),
        EventFilter(tag="blue"),
        EventFilter(job="1"),
        EventFilter(queue="mail", type="a.b", tag="red", job="1"),
    ],
)
def test_an_event_of_a_job_is_heard_if_all_that_is_set_matches(filter: EventFilter) -> None:
    assert filter.matches(OF_JOB)


@pytest.mark.parametrize(
    "filter",
    [
        EventFilter(queue="other"),
        EventFilter(type="a.c"),
        EventFilter(tag="green"),
        EventFilter(job="2"),
        EventFilter(queue="other", type="a.b"),
        EventFilter(type="a.b", tag="green"),
        EventFilter(tag="red", job="2"),
        EventFilter(type="a.c", job="1"),
    ],
)
def test_an_event_of_a_job_is_not_heard_if_one_of_them_does_not(filter: EventFilter) -> None:
    assert not filter.matches(OF_JOB)


def test_an_event_of_a_queue_has_no_type_tag_or_job() -> None:
    assert EventFilter().matches(OF_QUEUE)
    assert EventFilter(queue="mail").matches(OF_QUEUE)
    for narrower in ({"type": "a.b"}, {"tag": "red"}, {"job": "1"}, {"queue": "other"}):
        assert not EventFilter(**{"queue": "mail", **narrower}).matches(OF_QUEUE)


@pytest.mark.parametrize("field", ["queue", "type", "tag", "job"])
def test_every_listener_hears_that_events_are_missing(field: str) -> None:
    assert EventFilter(**{field: "x"}).matches(RESET)


def running(**changes: Any) -> EventJob:
    return msgspec.structs.replace(JOB, status=Status.PROCESSING, **{"token": 1, **changes})


@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        ([], running(), [EventKind.STARTED]),
        ([], running(progress=0.5), [EventKind.STARTED, EventKind.PROGRESS]),
        ([running()], running(), []),
        ([running()], running(progress=0.5), [EventKind.PROGRESS]),
        ([running()], running(progress_message="half"), [EventKind.PROGRESS]),
        ([running(progress=0.5)], running(progress=0.5), []),
        ([running()], running(token=2), [EventKind.STARTED]),
        ([running(progress=0.5)], running(token=2, progress=0.5), [EventKind.STARTED, EventKind.PROGRESS]),
    ],
)
def test_two_looks_at_running_jobs_show_starts_and_progress(
    before: list[EventJob], now: EventJob, kinds: list[EventKind]
) -> None:
    found = list(running_events({job.id: job for job in before}, [now], NOON))
    assert [event.kind for event in found] == kinds
    assert all(event.job == now for event in found)


def test_two_looks_at_paused_queues_show_pauses_and_resumptions() -> None:
    again = msgspec.structs.replace(OF_QUEUE, reason="other")
    assert list(pause_events({}, {"mail": OF_QUEUE}, NOON)) == [OF_QUEUE]
    assert list(pause_events({"mail": OF_QUEUE}, {"mail": OF_QUEUE}, NOON)) == []
    assert list(pause_events({"mail": OF_QUEUE}, {"mail": again}, NOON)) == [again]
    assert list(pause_events({"mail": OF_QUEUE}, {}, NOON)) == [Event(EventKind.RESUMED, at=NOON, queue="mail")]


def test_only_the_last_event_of_a_look_carries_the_position_after_it() -> None:
    assert [event.position for event in placed([OF_JOB, OF_QUEUE, RESET], "a", "b")] == ["a", "a", "b"]
    assert placed([], "a", "b") == []
