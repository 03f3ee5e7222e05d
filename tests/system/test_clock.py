"""How far a clock elsewhere is ahead, as far as it can be known."""

import hypothesis.strategies as st
from hypothesis import given

from demora.system.clock import DRIFT, Distance

AHEAD = 1_700_000_000_000_000  # microseconds
LOOKS = st.lists(st.tuples(st.floats(0, 0.01), st.floats(0, 0.01), st.floats(0, 10)), min_size=1, max_size=20)


@given(LOOKS)
def test_it_is_never_further_off_than_any_look_allows(looks: list[tuple[float, float, float]]) -> None:
    distance, now = Distance(), 1000.0
    ages = list[tuple[float, float]]()
    for there, back, rest in looks:
        asked, read, now = now, now + there, now + there + back
        distance.learn(int(AHEAD + read * 1e6), asked, now)
        ages = [(now, there + back), *ages]
        off = abs(distance.there_us(now) - (AHEAD + now * 1e6))
        assert off <= min(took * 1e6 + (now - at) * DRIFT for at, took in ages) / 2 + 2
        now += rest


def test_two_looks_tell_more_than_one() -> None:
    """One was asked quickly and answered slowly, the other the other way round."""
    distance = Distance()
    distance.learn(AHEAD + 100, 0.0, 0.01)
    assert distance.there_us(0.01) == AHEAD + 5100
    distance.learn(AHEAD + 30_000 - 100, 0.02, 0.03)
    assert abs(distance.there_us(0.03) - (AHEAD + 30_000)) <= 101


def test_a_clock_that_was_stepped_is_believed() -> None:
    distance = Distance()
    distance.learn(AHEAD, 0.0, 0.001)
    distance.learn(AHEAD - 3_600_000_000, 0.002, 0.003)
    assert distance.there_us(0.003) == AHEAD - 3_600_000_000 + 500
