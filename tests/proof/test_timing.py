"""On time and alive: judged only with a bound, and never held against a fault."""

import pytest

from demora.proof import Bounds, HistoryEvent, WorldEvent, check
from tests.proof.lives import START, Life, broken

BOUND = Bounds(start=100)
LATE = Life().added().wait(101).claimed().settled()
IN_TIME = Life().added().wait(100).claimed().settled()
DELAYED = Life().added(due_at=START + 5000).wait(5100).claimed().settled()
TRIED_AGAIN = Life().added().claimed().wait(9000).failed_once(due_at=START).wait(100).claimed().settled()


def world(*events: tuple[str, int]) -> list[WorldEvent]:
    return [WorldEvent(kind, START + ms) for kind, ms in events]


@pytest.mark.parametrize("life", [IN_TIME, DELAYED, TRIED_AGAIN], ids=["in time", "delayed", "tried again"])
def test_a_start_within_the_bound_is_accepted(life: Life) -> None:
    assert broken(check(life.events, bounds=BOUND)) == []


def test_a_start_beyond_the_bound_is_flagged() -> None:
    assert broken(check(LATE.events, bounds=BOUND)) == ["I7"]
    assert broken(check(LATE.events)) == []


@pytest.mark.parametrize("faults", [[("kill", -500)], [("kill", 50)], [("kill", 50), ("healed", 101)]], ids=str)
def test_a_late_start_in_a_fault_is_excused(faults: list[tuple[str, int]]) -> None:
    assert broken(check([*LATE.events, *world(*faults)], bounds=BOUND)) == []


@pytest.mark.parametrize(
    "faults",
    [[("kill", -500), ("healed", -400)], [("kill", 102)], [("kill", -9), ("stop", -8), ("healed", 0)]],
    ids=str,
)
def test_a_late_start_outside_of_faults_is_flagged(faults: list[tuple[str, int]]) -> None:
    assert broken(check([*LATE.events, *world(*faults)], bounds=BOUND)) == ["I7"]


def test_after_healing_the_backlog_has_the_bound_to_start() -> None:
    late = Life().added().wait(1100).claimed()
    assert broken(check([*late.events, *world(("kill", 0), ("healed", 1000))], bounds=BOUND)) == []
    assert broken(check([*late.events, *world(("kill", 0), ("healed", 999))], bounds=BOUND)) == ["I7"]


DRAINING: list[tuple[list[WorldEvent], list[str]]] = [
    (world(("healed", 0), ("drained", 100)), []),
    (world(("healed", 0), ("kill", 50), ("healed", 90), ("drained", 190)), []),
    (world(("drained", 100)), []),
    (world(("healed", 0), ("drained", 101)), ["I16"]),
    (world(("healed", 0)), ["I16"]),
]


@pytest.mark.parametrize(("history", "rules"), DRAINING, ids=str)
def test_the_queues_drain_within_their_bound_after_healing(history: list[HistoryEvent], rules: list[str]) -> None:
    assert broken(check(history, bounds=Bounds(drain=100))) == rules
    assert broken(check(history)) == []
