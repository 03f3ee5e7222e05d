"""The text of a search, what it means, and the order that its states ask for."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.filters import JobFilter, Sort, TimeRange, filter_text, parse_filter, sort_of
from demora.core.job import Priority
from demora.core.states import ENDED, WAITING, Status
from demora.errors import Invalid

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)

MEANINGS: dict[str, JobFilter] = {
    "": JobFilter(),
    "status:running,Waiting": JobFilter(statuses=WAITING | {Status.PROCESSING}),
    "status:failed": JobFilter(statuses=frozenset({Status.FAILED})),
    "status:failed,CANCELLED": JobFilter(statuses=frozenset({Status.FAILED, Status.CANCELLED})),
    "status:failed status:cancelled": JobFilter(statuses=frozenset({Status.FAILED, Status.CANCELLED})),
    "queue:mail type:email.send": JobFilter(queue="mail", type="email.send"),
    "type:email.*": JobFilter(type="email.*"),
    "schedule:nightly": JobFilter(schedule="nightly"),
    "priority:high,low": JobFilter(priorities=frozenset({Priority.HIGH, Priority.LOW})),
    "tag:vip tag:eu": JobFilter(tags=("vip", "eu")),
    'tag:"very important"': JobFilter(tags=("very important",)),
    "error:Timeout": JobFilter(error="Timeout"),
    "no route": JobFilter(text="no route"),
    '"no\u00a0"': JobFilter(text="no\u00a0"),
    '"no: route"': JobFilter(text="no: route"),
    r'"say \"no\" \\ x" now': JobFilter(text=r'say "no" \ x now'),
    "10:30": JobFilter(text="10:30"),
    "created:<2h": JobFilter(created=TimeRange(since=NOW - 2 * HOUR)),
    "created:>2h": JobFilter(created=TimeRange(until=NOW - 2 * HOUR)),
    "created:2h..1d": JobFilter(created=TimeRange(NOW - 24 * HOUR, NOW - 2 * HOUR)),
    "created:>2026-03-01": JobFilter(created=TimeRange(since=MARCH)),
    "created:<2026-03-01T00:00:00Z": JobFilter(created=TimeRange(until=MARCH)),
    "created:2026-03-01..2026-04-01": JobFilter(created=TimeRange(MARCH, APRIL)),
    "created:>2026-03-01 created:<2026-04-01": JobFilter(created=TimeRange(MARCH, APRIL)),
    "due:<2h": JobFilter(statuses=WAITING, due=TimeRange(until=NOW + 2 * HOUR)),
    "due:>2h": JobFilter(statuses=WAITING, due=TimeRange(since=NOW + 2 * HOUR)),
    "status:failed ended:<2h": JobFilter(statuses=frozenset({Status.FAILED}), ended=TimeRange(since=NOW - 2 * HOUR)),
    "ended:<2h": JobFilter(statuses=ENDED, ended=TimeRange(since=NOW - 2 * HOUR)),
    "status:failed queue:mail type:email.* tag:vip error:Timeout created:>2h": JobFilter(
        statuses=frozenset({Status.FAILED}),
        queue="mail",
        type="email.*",
        tags=("vip",),
        error="Timeout",
        created=TimeRange(until=NOW - 2 * HOUR),
    ),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_search_means_a_filter(text: str) -> None:
    assert parse_filter(text, NOW) == MEANINGS[text]


@pytest.mark.parametrize("text", MEANINGS)
def test_a_filter_is_written_as_it_is_read(text: str) -> None:
    assert parse_filter(filter_text(MEANINGS[text]), NOW) == MEANINGS[text]


REFUSED = {
    "state:failed": "did you mean status",
    "xyzzy:1": "the filters are status",
    "status:lost": "must be one of PENDING",
    "priority:urgent": "must be one of CRITICAL",
    "queue:a queue:b": "once only",
    "queue:": "has no value",
    '"no end': "not closed",
    "queue:/": "a queue is named",
    "type:*x": "a type is",
    "schedule:/": "must be the name of a schedule",
    "type:a*b": "a type is",
    "created:2h": "is a range of time",
    "created:>soon": "is not a span",
    "created:>2h created:>3h": "two values for the same side",
    "created:>2026-04-01 created:<2026-03-01": "begins after its end",
    "status:failed due:<2h": "is for jobs that are PENDING or QUEUED or RETRYING",
    "status:queued ended:<2h": "is for jobs that are COMPLETED or FAILED or CANCELLED",
    "created:>9999-12-31T23:59:59-01:00": "after the year 9999",
    "due:0001-01-01T00:00:00+01:00..2026-03-01": "before the year 1",
    "x" * 1001: "at most 1000 characters",
    "x" * 201: "1 to 200 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_search_that_cannot_be_read_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(Invalid, match=REFUSED[text]):
        parse_filter(text, NOW)


TEXTS = st.text(min_size=1, max_size=64).filter(lambda text: "\0" not in text)
TIMES = st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)


@given(
    status=st.frozensets(st.sampled_from(Status)),
    priority=st.frozensets(st.sampled_from(Priority)),
    error=st.none() | TEXTS,
    text=st.none() | TEXTS,
    times=st.tuples(TIMES, TIMES),
)
def test_every_filter_can_be_written_and_read(
    status: frozenset[Status], priority: frozenset[Priority], error: str | None, text: str | None, times: Any
) -> None:
    since, until = times if None in times else sorted(times)
    filter = JobFilter(status, "q", "a.*", priority, ("x", "y z"), error, text, TimeRange(since, until), schedule="s:1")
    assert parse_filter(filter_text(filter), NOW) == filter


@given(st.text(alphabet='statuqe:"\\<>.,2hd *', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Invalid):
        parse_filter(text, NOW)


def of(*statuses: Status) -> JobFilter:
    return JobFilter(statuses=frozenset(statuses))


@pytest.mark.parametrize(
    ("filter", "asked", "expected"),
    [
        (JobFilter(), None, (JobFilter(), Sort.CREATED)),
        (of(Status.QUEUED, Status.RETRYING), None, (of(Status.QUEUED, Status.RETRYING), Sort.DUE)),
        (of(Status.FAILED), None, (of(Status.FAILED), Sort.ENDED)),
        (of(Status.PROCESSING), None, (of(Status.PROCESSING), Sort.CREATED)),
        (of(Status.FAILED, Status.QUEUED), None, (of(Status.FAILED, Status.QUEUED), Sort.CREATED)),
        (of(Status.FAILED), "created", (of(Status.FAILED), Sort.CREATED)),
        (
            JobFilter(statuses=frozenset({Status.FAILED}), schedule="x"),
            None,
            (JobFilter(statuses=frozenset({Status.FAILED}), schedule="x"), Sort.CREATED),
        ),
        (
            JobFilter(statuses=frozenset({Status.FAILED}), tags=("x",)),
            None,
            (JobFilter(statuses=frozenset({Status.FAILED}), tags=("x",)), Sort.CREATED),
        ),
        (JobFilter(), "due", (of(*WAITING), Sort.DUE)),
        (JobFilter(), Sort.ENDED, (of(*ENDED), Sort.ENDED)),
    ],
)
def test_the_states_say_the_order_unless_one_is_asked_for(filter: JobFilter, asked: Any, expected: Any) -> None:
    assert sort_of(filter, asked) == expected


@pytest.mark.parametrize(("filter", "asked"), [(of(Status.FAILED), "due"), (of(Status.QUEUED), "ended"), (of(), "size")])
def test_an_order_that_the_states_do_not_have_is_refused(filter: JobFilter, asked: str) -> None:
    with pytest.raises(Invalid, match="sort"):
        sort_of(filter, asked)
