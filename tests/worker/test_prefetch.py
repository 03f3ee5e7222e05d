"""How much a worker claims ahead of its free slots."""

from demora.worker.prefetch import IDLE, MOST_AHEAD, Prefetch

QUICK = 1 / 2048  # seconds, without a rounding error


def test_about_ten_milliseconds_of_work_are_claimed_ahead() -> None:
    assert after_working(jobs=100, each=QUICK).jobs == 20


def test_the_first_window_counts_in_full_and_later_ones_half() -> None:
    prefetch = Prefetch()
    now = work(prefetch, 0.0, jobs=11, each=QUICK)
    assert prefetch.jobs == 20
    prefetch.idle(now)
    work(prefetch, now, jobs=3, each=4 * QUICK)
    assert prefetch.jobs == (20 + 5) // 2


def test_the_time_in_which_nothing_runs_does_not_count() -> None:
    prefetch, now = Prefetch(), 0.0
    for _ in range(20):
        now = work(prefetch, now, jobs=20, each=QUICK)
        prefetch.idle(now)
        now += IDLE / 2  # a slow disk
        prefetch.before_claim(now)
    assert prefetch.jobs == 20


def test_slow_jobs_are_not_claimed_ahead() -> None:
    assert after_working(jobs=100, each=2 * IDLE).jobs == 0


def test_after_a_long_rest_nothing_is_claimed_ahead() -> None:
    prefetch = after_working(jobs=100, each=QUICK)
    prefetch.idle(1.0)
    prefetch.before_claim(1.1 + IDLE)
    assert prefetch.jobs == 0


def test_what_is_claimed_ahead_is_bounded() -> None:
    assert after_working(jobs=10_000, each=0.000001).jobs == MOST_AHEAD


def after_working(*, jobs: int, each: float) -> Prefetch:
    prefetch = Prefetch()
    work(prefetch, 0.0, jobs=jobs, each=each)
    return prefetch


def work(prefetch: Prefetch, now: float, *, jobs: int, each: float) -> float:
    """Run so many jobs one after the other, and answer with the time then."""
    prefetch.busy(now)
    for _ in range(jobs):
        now += each
        prefetch.job_ended(now)
    return now
