"""What the answers of other servers mean."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.outbound.answers import (
    LONGEST_RETRY_AFTER,
    Meaning,
    meaning_of_call,
    meaning_of_delivery,
    retry_after,
    wait_before,
)
from demora.core.verdict import backoff

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        *(
            (200, "done"),
            (204, "done"),
            (299, "done"),
            (301, "useless"),
            (304, "useless"),
            (400, "useless"),
            (404, "useless"),
        ),
        *((408, "again"), (410, "useless"), (425, "again"), (429, "again"), (500, "again"), (503, "again"), (599, "again")),
    ],
)
def test_a_call_is_done_tried_again_or_useless(status: int, meaning: str) -> None:
    assert meaning_of_call(status) is Meaning(meaning)


def test_a_call_that_expects_something_is_done_with_that_only() -> None:
    assert meaning_of_call(404, [404]) is Meaning.DONE
    assert meaning_of_call(503, [503]) is Meaning.DONE
    assert meaning_of_call(200, [201]) is Meaning.USELESS
    assert meaning_of_call(500, [201]) is Meaning.AGAIN


@given(st.integers(100, 599))
def test_a_delivery_is_tried_until_a_success_unless_the_receiver_is_gone(status: int) -> None:
    meaning = meaning_of_delivery(status)
    assert (meaning is Meaning.DONE) == (200 <= status < 300)
    assert (meaning is Meaning.GONE) == (status == 410)
    assert meaning is not Meaning.USELESS


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        *(("120", 120 * SECOND), (" 0 ", 0 * SECOND), ("Tue, 01 Jan 2030 00:01:00 GMT", 60 * SECOND)),
        *(("Mon, 01 Jan 2029 00:00:00 GMT", 0 * SECOND), ("9" * 50, LONGEST_RETRY_AFTER)),
        *(("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER), (None, None), ("", None), ("soon", None), ("-5", None)),
        *(("1.5", None), ("١٢", None), ("Tue, 01 Jan 2030 00:01:00 -0000", None)),
    ],
)
def test_a_wait_that_was_asked_for_is_read_and_capped(value: str | None, wait: timedelta | None) -> None:
    assert retry_after(value, NOW) == wait


@given(st.text())
def test_any_text_in_its_place_is_a_wait_or_none(value: str) -> None:
    wait = retry_after(value, NOW)
    assert wait is None or timedelta(0) <= wait <= LONGEST_RETRY_AFTER


@given(st.timedeltas(timedelta(0), LONGEST_RETRY_AFTER), st.integers(1, 50))
def test_what_was_asked_for_never_shortens_the_usual_wait(asked: timedelta, failures: int) -> None:
    usual = backoff(5 * SECOND, failures, cap=LONGEST_RETRY_AFTER)
    wait = wait_before(asked, base=5 * SECOND, failures=failures, cap=LONGEST_RETRY_AFTER)
    assert wait == max(asked, usual) <= LONGEST_RETRY_AFTER
    assert wait_before(None, base=5 * SECOND, failures=failures, cap=LONGEST_RETRY_AFTER) is None
