"""How often the log names a subject."""

import pytest

from demora.system.log_limit import MINUTE, MOST_SUBJECTS, Limit
from tests.clock import TestClock


@pytest.mark.parametrize(("lasting", "again"), [(False, True), (True, False)])
def test_a_subject_is_named_again_after_a_minute_unless_once_is_enough(clock: TestClock, lasting: bool, again: bool) -> None:
    limit = Limit(lambda: clock.boot() / 1000, lasting=lasting)
    assert [limit.admits("a"), limit.admits("a"), limit.admits("b")] == [True, False, True]
    clock.turn(MINUTE - 1)
    assert not limit.admits("a")
    clock.turn(1)
    assert [limit.admits("a"), limit.admits("a")] == [again, False]


def test_a_minute_has_so_many_subjects_at_most(clock: TestClock) -> None:
    limit = Limit(lambda: clock.boot() / 1000)
    assert [limit.admits(str(n)) for n in range(MOST_SUBJECTS + 1)] == [True] * MOST_SUBJECTS + [False]
    assert limit.full
    clock.turn(MINUTE)
    assert limit.admits("one more")
    assert not limit.full
