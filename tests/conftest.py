"""What all tests share."""

import pytest

from tests.clock import TestClock


@pytest.fixture
def clock() -> TestClock:
    return TestClock()
