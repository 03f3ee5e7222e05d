"""Releases that break the promise of a pace: each is flagged under I8."""

from collections.abc import Collection, Sequence

import pytest

from demora.proof import Bounds, SqlEvent, WorldEvent, check
from demora.store.audit import PaceFacts
from tests.proof.lives import START, Life, evidence

CALM = PaceFacts("default", START - 1, lanes=(1, 2), rates=((1000, 2, 100), (1000, 2, 100)))


def released(number: int, slot: int, *, late: int = 0) -> list[SqlEvent]:
    """A scheduled job that is let go under a slot, so many milliseconds after the start, or later."""
    life = Life(f"01900000-0000-7000-8000-00000000{number:04}", seq=number * 10).added(lane=1)
    return life.wait(slot + late).changed(lane=3, due_at=START + slot).claimed(lane=3).settled(lane=3).events


def rules_broken(
    *lives: list[SqlEvent],
    paces: list[PaceFacts] | None = None,
    world: Sequence[WorldEvent] = (),
    slots: float | None = None,
) -> set[str]:
    history = [*(event for life in lives for event in life), *world]
    found = check(history, evidence(paces=[CALM] if paces is None else paces), bounds=Bounds(slots=slots))
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


@pytest.mark.parametrize(
    ("paces", "broken"),
    [
        ([PaceFacts("*", START - 1, CALM.lanes, CALM.rates)], {"I8"}),
        ([PaceFacts("*", START - 1, CALM.lanes, CALM.rates), PaceFacts("default", START - 1)], set()),
        ([PaceFacts("default", START - 9), PaceFacts("*", START - 1, CALM.lanes, CALM.rates)], set()),
        ([PaceFacts("*", START - 9, CALM.lanes, CALM.rates), PaceFacts("*", START - 1)], set()),
        (
            [
                PaceFacts("default", START - 9),
                PaceFacts("*", START - 8, CALM.lanes, CALM.rates),
                PaceFacts("default", START - 1, follows=True),
            ],
            {"I8"},
        ),
    ],
    ids=["follows", "left out at once", "left out before", "removed", "follows again"],
)
def test_a_queue_keeps_to_the_pace_of_all_queues_unless_it_is_left_out(paces: list[PaceFacts], broken: set[str]) -> None:
    claimed = Life().added(lane=1).wait(5).claimed(lane=1).settled(lane=1).events
    assert rules_broken(claimed, paces=paces) == broken


def backlog(cycles: int, *, left_out: Collection[int] = ()) -> list[list[SqlEvent]]:
    """As many jobs as so many cycles have slots, all due at the start, let go in turn but for cycles that are left out; and
    one that waits until the end."""
    times = [cycle * 1000 + step for cycle in range(cycles + len(left_out)) if cycle not in left_out for step in (0, 100)]
    return [released(n, slot) for n, slot in enumerate([*times, (cycles + len(left_out)) * 1000], 1)]


def test_a_backlog_whose_slots_are_used_is_fine() -> None:
    assert rules_broken(*backlog(20), slots=0.95) == set()


def test_a_backlog_whose_slots_are_left_out_is_flagged_where_a_share_was_promised() -> None:
    lazy = backlog(20, left_out={7, 12, 13})
    assert rules_broken(*lazy, slots=0.95) == {"I8"}
    assert rules_broken(*lazy) == set()


def test_slots_may_be_left_out_while_nothing_is_held() -> None:
    later = [made_up(n, due=20_000 + n * 1000, late=0) for n in range(21, 24)]
    assert rules_broken(*backlog(5), *later, slots=0.95) == set()


def test_slots_that_are_made_up_late_were_not_left_out() -> None:
    single = [made_up(n, due=n * 4500, late=4000) for n in range(1, 20)]
    assert rules_broken(*single, slots=0.95) == set()


def made_up(number: int, *, due: int, late: int) -> list[SqlEvent]:
    """A job that is let go late, under the slot at which it was due."""
    life = Life(f"01900000-0000-7000-8000-00000000{number:04}", seq=number * 10).added(lane=1, due_at=START + due)
    return life.wait(due + late).changed(lane=3, due_at=START + due).claimed(lane=3).settled(lane=3).events


def test_slots_may_be_left_out_in_a_fault() -> None:
    lazy = backlog(20, left_out={7, 8, 9, 10})
    world = [WorldEvent("kill -9 of all", START + 6900), WorldEvent("healed", START + 11_000)]
    assert rules_broken(*lazy, world=world, slots=0.95) == set()
    assert rules_broken(*lazy, world=world[:1], slots=0.95) == set()
    assert rules_broken(*backlog(20, left_out={15, 17, 18}), world=world, slots=0.95) == {"I8"}


def test_what_has_expired_is_not_held() -> None:
    expired = Life(seq=5000).added(lane=1, expires_at=START + 500).wait(30_000).cancelled(lane=1).events
    assert rules_broken(*backlog(5), expired, slots=0.95) == set()


def test_once_a_pace_is_off_nothing_is_held() -> None:
    free = Life().added(lane=1).wait(5).claimed(lane=1).settled(lane=1).events
    assert rules_broken(free, paces=[CALM, PaceFacts("default", START + 2)]) == set()
