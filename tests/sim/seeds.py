"""The simulator as tests, one for each seed: `make mutants` runs them, and stops at the first that fails."""

import logging
import sys

import pytest

from tests.sim import lined
from tests.sim.run import simulate

SEEDS, JOBS = 300, 100


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed processes leave coroutines behind that complain when they are collected."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_simulation_keeps_every_promise(seed: int) -> None:
    assert not simulate(seed, JOBS).violations


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_simulation_with_a_line_keeps_every_promise(seed: int) -> None:
    assert not lined.simulate(seed, JOBS).violations
