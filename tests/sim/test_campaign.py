"""The simulator as part of the suite: a campaign without violations, and seeds that can be replayed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import remote

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator. It only computes, so it leaves the cores to tests that wait for real processes."""
    command = ["nice", sys.executable, "-m", "tests.sim", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [("--seeds", "8"), ("--line", "--seeds", "4"), ("--remote", "--seeds", "4")],
    ids=["plain", "line", "remote"],
)
def test_the_first_seeds_keep_every_promise(arguments: tuple[str, ...]) -> None:
    campaign = simulate(*arguments, "--jobs", "100", "--small", "--processes", "1")
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    assert "0 seeds with violations" in campaign.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--line", "--seed", "1221328678"), ("--remote", "--seed", "32")],
    ids=["clock set back twice at the beginning", "a job lets a more urgent one go first"],
)
def test_seeds_that_were_judged_wrongly_keep_every_promise(arguments: tuple[str, ...]) -> None:
    replay = simulate(*arguments, "--jobs", "100")
    assert replay.returncode == 0, replay.stdout + replay.stderr


@pytest.mark.campaign
def test_remote_workers_and_their_service_keep_every_promise_over_a_wire_that_loses_things() -> None:
    campaign = simulate("--remote", "--seeds", "60", "--jobs", "100", "--small")
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    for fault in remote.EXPECTED:
        assert fault in campaign.stdout


@pytest.mark.campaign
def test_fifty_thousand_simulated_jobs_keep_every_promise_and_reach_every_rare_situation() -> None:
    campaign = simulate("--seeds", "250", "--jobs", "200")
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    assert "0 seeds with violations" in campaign.stdout


@pytest.mark.parametrize("way", [("--jobs", "200"), ("--jobs", "40", "--remote")], ids=["plain", "remote"])
def test_a_seed_replays_to_the_same_trace_in_any_interpreter(way: tuple[str, ...]) -> None:
    traces = [simulate("--seed", "7", *way, PYTHONHASHSEED=str(seed)).stdout for seed in (0, 1, 4242)]
    assert re.search(r"^trace [0-9a-f]{16}$", traces[0], re.MULTILINE)
    assert traces[0] == traces[1] == traces[2]
    assert simulate("--seed", "8", *way).stdout != traces[0]
