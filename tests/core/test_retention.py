"""How long ended jobs are kept, as people write it."""

from datetime import timedelta

import pytest

from demora.core.retention import Keep, Retention, RetentionRequest, keep, read_retention
from demora.core.states import ENDED, Status
from demora.errors import Invalid

WEEK = timedelta(days=7)


@pytest.mark.parametrize(
    ("text", "meant", "shown"),
    [
        ("7d", Keep(WEEK), "7d"),
        ("1000", Keep(count=1000), "1000"),
        ("7d,1000", Keep(WEEK, 1000), "7d,1000"),
        ("1000, 7d", Keep(WEEK, 1000), "7d,1000"),
        ("0", Keep(count=0), "0"),
        ("forever", Keep(), "forever"),
    ],
)
def test_an_age_a_number_both_or_for_ever(text: str, meant: Keep, shown: str) -> None:
    assert keep(text, "keep_failed") == meant
    assert str(meant) == shown


@pytest.mark.parametrize("text", ["", "soon", "-1d", "7d,8d", "1,2", "7d,1000,3", "100001", None, 7])
def test_anything_else_is_refused_by_name(text: object) -> None:
    with pytest.raises(Invalid) as refused:
        keep(text, "keep_failed")  # type: ignore[arg-type]
    assert refused.value.field == "keep_failed"
    assert "forever" in refused.value.reason


def test_a_queue_comes_before_the_general_wish_part_by_part() -> None:
    general = Retention(Keep(WEEK), Keep(WEEK), Keep(count=9))
    own = Retention(completed=Keep(), failed=None)
    assert own.over(general) == Retention(Keep(), Keep(WEEK), Keep(count=9))


def test_each_ended_state_has_its_part() -> None:
    kept = Retention(Keep(count=1), Keep(count=2), Keep(count=3))
    parts = {status: kept.of(status) for status in ENDED}
    assert parts == {
        Status.COMPLETED: Keep(count=1),
        Status.CANCELLED: Keep(count=2),
        Status.FAILED: Keep(count=3),
    }


def test_nothing_said_is_nothing_to_change() -> None:
    assert read_retention() is None
    assert read_retention("1d") == RetentionRequest(completed=Keep(timedelta(days=1)))


def test_a_wish_changes_only_what_it_names_and_can_give_a_part_back() -> None:
    own = Retention(Keep(WEEK), Keep(count=1))
    asked = read_retention(completed="forever", cancelled=None)
    assert asked is not None
    assert asked.over(own) == Retention(Keep())
    assert read_retention(cancelled="general") == RetentionRequest(cancelled=None)
    assert RetentionRequest().over(own) == own
