"""Rescues: a safety net may find a job after a fault, or one that is still on its way, and no other."""

import pytest

from demora.proof import Bounds, HistoryEvent, WorldEvent, check
from tests.proof.lives import JOB, START, Life, broken

BOUND = Bounds(rescue=500)
LIFE = Life().added().wait(2000).claimed().settled().events


def rescued(ms: int) -> WorldEvent:
    return WorldEvent("rescued", START + ms, "sweep", JOB)


def test_a_job_that_a_net_had_to_find_is_flagged() -> None:
    findings = check([*LIFE, rescued(501)], bounds=BOUND)
    assert (broken(findings), findings.counts["rescued"]) == (["I7"], 1)
    assert "safety net (sweep) 501 ms" in findings.explain()


def test_a_job_that_was_on_its_way_is_not() -> None:
    findings = check([*LIFE, rescued(500)], bounds=BOUND)
    assert (broken(findings), findings.counts.get("rescued")) == ([], None)


@pytest.mark.parametrize("faults", [[("kill", -500)], [("kill", -500), ("healed", 100)]], ids=str)
def test_a_job_that_moved_in_a_fault_may_need_a_net(faults: list[tuple[str, int]]) -> None:
    world = [WorldEvent(kind, START + ms) for kind, ms in faults]
    findings = check([*LIFE, *world, rescued(1500)], bounds=BOUND)
    assert (broken(findings), findings.counts["rescued"]) == ([], 1)


def test_rescues_are_counted_and_not_judged_without_a_bound() -> None:
    findings = check([*LIFE, rescued(501)])
    assert (broken(findings), findings.counts["rescued"]) == ([], 1)


def test_a_rescue_is_no_fault() -> None:
    late = Life().added().wait(2000).claimed().settled().events
    assert broken(check([*late, rescued(10)], bounds=Bounds(start=100))) == ["I7"]


@pytest.mark.parametrize("back", [0, 10_000, 100_000])
def test_a_clock_that_is_set_back_in_a_fault_does_not_end_it(back: int) -> None:
    """By the clock that was set the job moved before the fault began."""
    assert broken(check([*_set_back(back), *_faults(back, 60_000)], bounds=BOUND)) == []


@pytest.mark.parametrize("back", [0, 10_000, 100_000])
def test_a_rescue_after_a_fault_in_which_the_clock_was_set_back_is_flagged(back: int) -> None:
    """By the clock that was set the job moved within the fault."""
    assert broken(check([*_set_back(back), *_faults(back, 50)], bounds=BOUND)) == ["I7"]


def _set_back(ms: int) -> list[HistoryEvent]:
    """A job that moves after 100 ms and is found 1500 ms later, while the clock stands `ms` behind."""
    life = Life().wait(100)
    boot, life.at = life.boot, life.at - ms
    found = WorldEvent("rescued", life.at + 1500, "sweep", JOB, boot=boot + 1500)
    return [*life.added(due_at=life.at).wait(2000).claimed().settled().events, found]


def _faults(back: int, ms: int) -> list[HistoryEvent]:
    """A fault that begins at once, in which the clock is set back, and which is over after a while."""
    boot = Life().boot
    return [WorldEvent("trouble", START, boot=boot), WorldEvent("healed", START + ms - back, boot=boot + ms)]
