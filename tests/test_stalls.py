"""Time in which the machine stood still is counted once, and only within the time asked about."""

from array import array
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.stalls import covered, stalls, watching


def test_only_ticks_that_are_far_apart_tell_of_a_stall() -> None:
    assert list(stalls(array("d", [1.000, 1.002, 1.500, 1.505, 1.507]))) == [(1.002, 1.500)]


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(8.0, 9.0)], 0.0),
        ([(9.0, 10.5)], 0.5),
        ([(11.5, 20.0)], 0.5),
        ([(0.0, 99.0)], 2.0),
        ([(10.5, 11.0), (10.75, 11.25)], 0.75),
        ([(10.0, 11.0), (10.25, 10.5), (11.5, 11.75)], 1.25),
    ],
)
def test_what_two_cores_saw_counts_once_and_only_within_the_time(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans, 10.0, 12.0) == seconds


@pytest.mark.parametrize("disk", [False, True])
async def test_the_watches_are_heard_up_to_the_time_asked_about(disk: bool, tmp_path: Path) -> None:
    with watching(tmp_path, disk=disk) as seen:
        now = datetime.now(UTC)
        assert timedelta(0) <= await seen.between(now, now + timedelta(milliseconds=50)) <= timedelta(milliseconds=50)
