"""The statistics beside an oracle: in runs without faults, with a pace that holds many jobs, on fixed seeds."""

import logging
from datetime import timedelta

import pytest

from demora.core.pace import EVERY_QUEUE, Governs, Pace
from tests.sim.run import Simulation
from tests.sim.statistics import Cycle, Statistics

pytestmark = pytest.mark.slow

CYCLE = Pace(gap=timedelta(seconds=6), burst=3, stagger=timedelta(seconds=1))
PACES = (
    Pace(gap=timedelta(seconds=10), burst=1),
    Pace(gap=timedelta(seconds=20), burst=3, stagger=timedelta(seconds=3)),
    Pace(gap=timedelta(seconds=15), burst=2, governs=Governs.SCHEDULED),
)


class Paced(Simulation):
    """A seed without faults, in which a slow pace holds many jobs."""

    calm = True

    def __init__(self, seed: int, jobs: int) -> None:
        super().__init__(seed, jobs)
        self._pace, self._paced = PACES[seed % len(PACES)], EVERY_QUEUE if seed % 2 else "mail"
        self._statistics = Statistics(self._world, seed, self._pace, self._paced)

    async def _trouble(self) -> None:
        pass


@pytest.mark.parametrize("seed", [1, 3, 4, 5, 6])
def test_the_statistics_are_those_of_the_oracle_at_every_moment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    result = Paced(seed, 60).run()
    assert result.violations == []
    assert result.compared == 12
    assert result.gaps >= 10


@pytest.mark.parametrize(
    ("used", "due", "now", "right"),
    [
        ((), 5, 9, 9),  # the first release is immediate
        ((), 12, 9, 12),
        ((0,), 5, 500, 1000),  # the next time of the cycle
        ((0,), 1500, 1600, 2000),  # a time that passed before the job was due is lost to it
        ((0,), 500, 1600, 1600),  # one that passed while it was held is not
        ((0, 1000, 2000), 500, 2500, 6000),  # the cycle is used up
        ((0, 2000), 2500, 2600, 6000),
        ((0, 1000), 7000, 6500, 7000),
        ((0,), 500, 12_500, 12_500),  # after a whole further cycle nothing is made up
    ],
)
def test_the_oracle_tells_when_the_next_job_is_released(used: tuple[int, ...], due: int, now: int, right: int) -> None:
    assert Cycle(CYCLE, used).next(due, now) == right


def test_a_release_time_that_passed_before_the_last_release_is_lost_even_to_a_job_that_was_held_then() -> None:
    assert Cycle(CYCLE, (0,), released_at=1200).next(500, 1600) == 2000


def test_the_oracle_tells_how_many_jobs_could_be_released() -> None:
    assert Cycle(CYCLE, (0,)).take([100, 200, 300], 2500) == 2
    assert Cycle(CYCLE, (0,)).take([100, 1700, 1800], 2500) == 2
    assert Cycle(CYCLE, (0,)).take([100, 2200], 2500) == 1
    assert Cycle(CYCLE, ()).take([100, 100], 100) == 1
