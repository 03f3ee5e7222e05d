"""What becomes of a job after a run."""

from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.job import Lane
from demora.core.states import MOVES, WAITING, Status
from demora.core.verdict import (
    EXPIRED,
    NO_HANDLER_CAP,
    Cancelled,
    HandedBack,
    Lapsed,
    NoHandler,
    Outcome,
    Raised,
    RetryState,
    Snoozed,
    Succeeded,
    Verdict,
    decide,
    time_without_handler,
    waiting_after,
)

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
spans = st.timedeltas(timedelta(0), timedelta(days=365))
counted = st.one_of(
    st.builds(Raised, st.text(), permanent=st.booleans(), after=st.none() | spans), st.builds(Lapsed, st.none() | st.text())
)
uncounted = st.one_of(st.builds(Snoozed, spans), st.just(HandedBack()), st.just(NoHandler()))
endings = st.one_of(st.builds(Succeeded, st.binary()), st.builds(Cancelled, st.text(min_size=1)))
outcomes = st.one_of(counted, uncounted, endings)
retry_states = st.builds(
    RetryState,
    attempt=st.integers(1, 20),
    max_retries=st.integers(0, 10),
    retry_delay=spans,
    no_handler_claims=st.integers(0, 100),
    jitter=st.floats(0, 1),
)
drawn = st.floats(0, 1, exclude_max=True)


def verdict(outcome: Outcome, attempt: int = 1, **retry_state) -> Verdict:
    return decide(outcome, RetryState(attempt, **retry_state), 0.0)


@given(outcomes, retry_states, drawn)
def test_every_verdict_is_a_legal_move_of_a_running_job(outcome: Outcome, job: RetryState, drawn: float) -> None:
    given, after = decide(outcome, job, drawn), decide(outcome, job, drawn).after_cancel_request()
    assert {given.status, after.status} <= MOVES[Status.PROCESSING]


def test_an_expiry_is_a_legal_move_of_every_waiting_job() -> None:
    assert all(EXPIRED.status in MOVES[status] for status in WAITING)


@given(outcomes, retry_states, drawn)
def test_only_jobs_that_wait_have_a_delay_and_it_is_never_negative(outcome: Outcome, job: RetryState, drawn: float) -> None:
    given = decide(outcome, job, drawn)
    assert given.delay is None or (given.status.waiting and given.delay >= timedelta(0))


def test_a_success_completes_with_its_result() -> None:
    assert verdict(Succeeded(b"1"), attempt=9) == Verdict(Status.COMPLETED, result=b"1")


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4)])
def test_a_failure_is_retried_after_one_two_four_seconds(attempt: int, seconds: int) -> None:
    expected = Verdict(Status.RETRYING, timedelta(seconds=seconds), Lane.RETRY, error="no", traceback="t")
    assert verdict(Raised("no", "t"), attempt) == expected


@pytest.mark.parametrize(("attempt", "status"), [(1, Status.RETRYING), (3, Status.RETRYING), (4, Status.FAILED)])
def test_three_retries_are_four_runs(attempt: int, status: Status) -> None:
    assert verdict(Raised("no"), attempt, max_retries=3).status is status
    assert verdict(Lapsed("ann"), attempt, max_retries=3).status is status


def test_a_permanent_error_fails_at_once() -> None:
    assert verdict(Raised("no", "t", permanent=True)) == Verdict(Status.FAILED, error="no", traceback="t")


def test_a_handler_may_name_its_own_wait_but_gets_no_more_attempts() -> None:
    assert verdict(Raised("no", after=HOUR)).delay == HOUR
    assert verdict(Raised("no", after=HOUR), attempt=4).status is Status.FAILED


def test_a_lapse_is_a_failure_that_names_the_worker() -> None:
    first, last = verdict(Lapsed("ann")), verdict(Lapsed("ann"), attempt=4)
    assert (first.status, first.delay, first.lane, first.counts) == (Status.RETRYING, SECOND, Lane.RETRY, True)
    assert last.status is Status.FAILED
    assert first.error is not None
    assert first.error.startswith("WorkerLost: worker ann ")


@pytest.mark.parametrize(("attempt", "status"), [(1, Status.QUEUED), (2, Status.RETRYING), (9, Status.RETRYING)])
def test_a_run_that_does_not_count_goes_back_to_where_the_job_was(attempt: int, status: Status) -> None:
    assert verdict(HandedBack(), attempt) == Verdict(status, counts=False)
    assert verdict(Snoozed(HOUR), attempt) == Verdict(status, HOUR, Lane.RETRY, counts=False)
    assert verdict(NoHandler(), attempt).status is status


@pytest.mark.parametrize(("attempts", "status"), [(0, Status.QUEUED), (1, Status.RETRYING), (2, Status.RETRYING)])
def test_a_job_with_an_attempt_behind_it_waits_to_be_retried(attempts: int, status: Status) -> None:
    assert waiting_after(attempts) is status


def test_giving_up_cancels_with_the_reason() -> None:
    assert verdict(Cancelled("no need")) == Verdict(Status.CANCELLED, error="no need")


def test_jitter_shortens_the_wait_by_the_drawn_number() -> None:
    assert decide(Raised("no"), RetryState(1, jitter=0.5), 0.5).delay == timedelta(seconds=0.75)


def without_handler() -> list[Verdict]:
    """The verdicts on a job that no worker has a handler for, one after another, to its end."""
    given = [verdict(NoHandler())]
    while given[-1].status.waiting:
        given.append(verdict(NoHandler(), no_handler_claims=len(given)))
    return given


def test_a_job_without_a_handler_waits_longer_each_time() -> None:
    delays = [given.delay for given in without_handler()[:-1]]
    assert delays[:4] == [SECOND / 100, SECOND / 50, SECOND / 25, SECOND / 12.5]
    assert all(before <= after <= NO_HANDLER_CAP for before, after in pairwise(delays))
    assert all(given.no_handler and not given.counts for given in without_handler()[:-1])


def test_a_job_without_a_handler_fails_after_an_hour_and_without_an_attempt() -> None:
    last, waited = without_handler()[-1], sum((given.delay for given in without_handler()[:-1]), timedelta(0))
    assert (last.status, last.counts, last.no_handler) == (Status.FAILED, False, False)
    assert last.error is not None
    assert last.error.startswith("UnknownType")
    assert HOUR <= waited < HOUR + NO_HANDLER_CAP
    assert waited == time_without_handler(len(without_handler()) - 1)
    assert time_without_handler(0) == timedelta(0)


@given(outcomes, retry_states)
def test_only_a_success_escapes_a_request_to_cancel(outcome: Outcome, job: RetryState) -> None:
    given = decide(outcome, job, 0.0)
    after = given.after_cancel_request()
    if isinstance(outcome, Succeeded):
        assert after == given
    else:
        assert (after.status, after.delay, after.counts) == (Status.CANCELLED, None, given.counts)
        assert after.error
        assert given.error in (None, "", after.error)


@given(outcomes, retry_states)
def test_what_stands_is_what_a_wish_leaves_as_it_is(outcome: Outcome, job: RetryState) -> None:
    given = decide(outcome, job, 0.0)
    assert given.stands == (given.after_cancel_request() is given)


@given(st.lists(st.one_of(counted, uncounted), min_size=1, max_size=60), st.integers(0, 5))
def test_attempts_never_exceed_the_retries_plus_one(outcomes: list[Outcome], max_retries: int) -> None:
    retry_state, runs = RetryState(0, max_retries=max_retries), 0
    for outcome in outcomes:
        retry_state = msgspec.structs.replace(retry_state, attempt=retry_state.attempt + 1)
        given = decide(outcome, retry_state, 0.0)
        runs += given.counts
        retry_state = msgspec.structs.replace(retry_state, attempt=retry_state.attempt - (not given.counts))
        if given.status.ended:
            break
    assert runs == retry_state.attempt <= max_retries + 1
