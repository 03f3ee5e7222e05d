"""The simulator with a line and without faults: the safety nets of the line have nothing to do."""

import pytest

from tests.sim.test_campaign import simulate

pytestmark = pytest.mark.slow


def test_no_safety_net_has_to_find_a_job_without_a_fault() -> None:
    campaign = simulate("--calm", "--seeds", "8", "--jobs", "100", "--small")
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    assert "\n0 jobs that a safety net of the line had to find\n" in campaign.stdout
