"""What all tests share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.clock import TestClock
from tests.stalls import Stalls, watching

# The same examples in every run, so that a change that breaks nothing never fails; `make prove` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("explore", deadline=None, database=None, max_examples=500, print_blob=True)
PROFILE = os.environ.get("DEMORA_TEST_PROFILE", "same")
hypothesis.settings.load_profile(PROFILE)
LONG = 600  # seconds


def pytest_configure() -> None:
    """Hear Ctrl-C also where this was started in the background, which makes all that it starts deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests more time that start processes or hold real time, and properties while they are explored; a mark of their
    own goes before."""
    longer = {"slow", "timed", "campaign"} | ({"hypothesis"} if PROFILE == "explore" else set())
    for item in items:
        if longer & {mark.name for mark in item.iter_markers()} and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG))


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def stalls(tmp_path: Path) -> Iterator[Stalls]:
    with watching(tmp_path) as stalls:
        yield stalls
