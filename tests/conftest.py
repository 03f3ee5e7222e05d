"""What all tests share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clock import TestClock
from tests.stalls import Stalls, watching


def pytest_configure() -> None:
    """Hear Ctrl-C also where this was started in the background, which makes all that it starts deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def stalls(tmp_path: Path) -> Iterator[Stalls]:
    with watching(tmp_path) as stalls:
        yield stalls
