"""Which windows of the statistics a merge may take: those to which no process adds any more."""

import pytest

from demora.core.statistics import WINDOW_MS
from demora.engines.sql.statistics import closed_before


@pytest.mark.parametrize(("passed", "windows"), [(0, 4), (1, 4), (WINDOW_MS - 1, 4), (WINDOW_MS, 5)])
def test_a_window_is_closed_one_window_after_its_end(passed: int, windows: int) -> None:
    assert closed_before(5 * WINDOW_MS + passed) == windows * WINDOW_MS
