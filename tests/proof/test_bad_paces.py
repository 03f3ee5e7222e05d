"""Releases that break the promise of a pace: each is flagged under I8."""

import pytest

from demora.audit import PaceFacts
from demora.proof import SqlEvent, check
from tests.proof.lives import START, Life, evidence

CALM = PaceFacts("default", START - 1, lanes=(1, 2), rates=((1000, 2, 100), (1000, 2, 100)))


def released(number: int, slot: int, *, late: int = 0) -> list[SqlEvent]:
    """A scheduled job that is let go under a slot, so many milliseconds after the start, or later."""
    life = Life(f"01900000-0000-7000-8000-00000000{number:04}", seq=number * 10).added(lane=1)
    return life.wait(slot + late).changed(lane=3, due_at=START + slot).claimed(lane=3).settled(lane=3).events


def rules_broken(*lives: list[SqlEvent], paces: list[PaceFacts] | None = None) -> set[str]:
    history = [event for life in lives for event in life]
    found = check(history, evidence(paces=[CALM] if paces is None else paces))
    return {violation.rule for violation in found.violations if violation.rule == "I8"}


def test_slots_in_their_time_are_fine() -> None:
    assert rules_broken(released(1, 0), released(2, 100), released(3, 1000, late=40), released(4, 1100)) == set()


@pytest.mark.parametrize(
    "lives",
    [
        [released(1, 0), released(2, 100, late=-1)],
        [released(1, 0), released(2, 0)],
        [released(1, 100), released(2, 0, late=200)],
        [released(1, 0), released(2, 100), released(3, 200)],
        [Life().added(lane=1).wait(5).claimed(lane=1).settled(lane=1).events],
    ],
    ids=["early", "twice", "out of order", "beyond the burst", "claimed while held"],
)
def test_what_a_pace_forbids_is_flagged(lives: list[list[SqlEvent]]) -> None:
    assert rules_broken(*lives) == {"I8"}
    assert rules_broken(*lives, paces=[]) <= {"I8"}


def test_once_a_pace_is_off_nothing_is_held() -> None:
    free = Life().added(lane=1).wait(5).claimed(lane=1).settled(lane=1).events
    assert rules_broken(free, paces=[CALM, PaceFacts("default", START + 2)]) == set()
