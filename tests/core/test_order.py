"""Who goes first."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from demora.core.job import Lane, Priority, QueueOrder

CENTURY = 100 * 366 * 86_400_000
usual = QueueOrder()
lanes, ranks, times = st.sampled_from(Lane), st.sampled_from(Priority), st.integers(0, CENTURY)


def test_a_rank_costs_a_thousand_seconds_by_default() -> None:
    assert [usual.offset(Lane.REALTIME, rank) for rank in Priority] == [0, 1_000_000, 2_000_000, 3_000_000]


def test_all_but_real_time_jobs_start_thirty_seconds_behind() -> None:
    assert [usual.offset(lane, Priority.CRITICAL) for lane in Lane] == [0, 30_000, 30_000, 30_000]


def test_step_and_head_start_can_be_set() -> None:
    order = QueueOrder(step=timedelta(seconds=2), head_start=timedelta(milliseconds=5))
    assert order.offset(Lane.RETRY, Priority.LOW) == 6005


@given(lanes, ranks, times, lanes, ranks, times)
def test_a_strict_queue_looks_at_the_rank_first(lane, rank, ready, other_lane, other_rank, other_ready) -> None:
    strict = QueueOrder(strict=True)
    if rank < other_rank:
        assert ready + strict.offset(lane, rank) < other_ready + strict.offset(other_lane, other_rank)


@given(ranks, times, times)
def test_within_a_rank_no_delayed_job_is_put_off_by_more_than_the_head_start(rank, delayed, realtime) -> None:
    first = delayed + usual.offset(Lane.SCHEDULED, rank) < realtime + usual.offset(Lane.REALTIME, rank)
    assert first == (delayed + 30_000 < realtime)
