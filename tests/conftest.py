"""What all tests share."""

import signal

import pytest

from tests.clock import TestClock


def pytest_configure() -> None:
    """Hear Ctrl-C also where this was started in the background, which makes all that it starts deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()
