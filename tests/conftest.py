"""What all tests share."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from demora.engines.sqlite.connection import connections
from tests import copies
from tests.clock import TestClock
from tests.stalls import Stalls, watching

# The same examples in every run, so that a change that breaks nothing never fails; `make prove` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("explore", deadline=None, database=None, max_examples=500, print_blob=True)
PROFILE = os.environ.get("DEMORA_TEST_PROFILE", "same")
hypothesis.settings.load_profile(PROFILE)
LONG = 600  # seconds
MEMORY = Path("/dev/shm")  # a folder in memory, on Linux
ROOM = 4 << 30  # bytes that must be free there


def pytest_configure() -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a process in the background, and all that it starts, ignores it
    _keep_files_in_memory()
    connections.migrate = copies.migrate


def _keep_files_in_memory() -> None:
    """Make temporary files in memory, unless TMPDIR says where, so that no test waits for the disk: to create a durable
    SQLite file costs a tenth of a second there. Processes that the tests start inherit it."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests more time that start processes or hold real time, and properties while they are explored; a mark of their
    own goes before."""
    longer = {"slow", "timed", "campaign"} | ({"hypothesis"} if PROFILE == "explore" else set())
    for item in items:
        if longer & {mark.name for mark in item.iter_markers()} and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG))


class _Campaigns(LoadScopeScheduling):
    """Tests with real processes run one at a time, and simulations beside them."""

    def _split_scope(self, nodeid: str) -> str:
        return "simulated" if nodeid.startswith("tests/sim/") else "real"


@pytest.hookimpl(optionalhook=True)  # for runs without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Distribute the tests of `make campaigns` as `_Campaigns` does. No other target asks for scopes."""
    return _Campaigns(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def stalls(tmp_path: Path) -> Iterator[Stalls]:
    with watching(tmp_path) as stalls:
        yield stalls
