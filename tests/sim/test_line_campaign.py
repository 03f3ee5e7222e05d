"""The simulator with a line, as part of the suite: whatever becomes of the line, every promise is kept."""

import pytest

from tests.sim.test_campaign import simulate

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_four_thousand_simulated_jobs_keep_every_promise_whatever_becomes_of_the_line() -> None:
    campaign = simulate("--line", "--seeds", "40", "--jobs", "100", "--small")
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    assert "0 seeds with violations" in campaign.stdout
