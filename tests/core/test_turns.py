"""How often a job asks for its turn at a busy host, and how well the host is used meanwhile: simulated, to the event."""

import heapq
from random import Random

import pytest

from demora.core.outbound.turns import GUESS, LONGEST, SHORTEST, Crowd, average, come_back

PLACES = 4


class Host:
    """A host with four places, and jobs that come back when they are told to. Time passes only here."""

    def __init__(self, jobs: int, seconds: float, seed: int = 7) -> None:
        self.seconds, self.asks, self.served, self.now = seconds, 0, 0, 0.0
        self._chance, self._crowd, self._took = Random(seed).random, None, None
        self._free, self._last_taken = PLACES, 0.0
        self._events = [(n / 1000, n, 0.0) for n in range(jobs)]  # a worker claims a thousand a second
        self._n = jobs

    def run(self, until: float = float("inf")) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, began = heapq.heappop(self._events)
            if began:
                self._free, self.served, self._took = self._free + 1, self.served + 1, average(self._took, self.now - began)
            else:
                self._ask()

    def _ask(self) -> None:
        self.asks += 1
        self._n += 1
        if self._free:
            self._free, self._last_taken = self._free - 1, self.now
            heapq.heappush(self._events, (self.now + self.seconds, self._n, self.now or 1e-9))
            return
        gap = max(self._took or GUESS, self.now - self._last_taken) / PLACES
        self._crowd, wait = come_back(self._crowd, now=self.now, gap=gap, drawn=self._chance())
        heapq.heappush(self._events, (self.now + wait, self._n, 0.0))

    _crowd: Crowd | None
    _took: float | None


@pytest.mark.parametrize("seconds", [0.02, 0.2, 1.0, 5.0, 15.0])
def test_five_thousand_jobs_ask_a_few_times_each_and_keep_the_host_busy(seconds: float) -> None:
    host = Host(5000, seconds)
    host.run()
    ideal = 5000 * seconds / PLACES
    assert host.served == 5000
    assert host.asks / 5000 <= 9
    assert host.now <= 1.5 * ideal + 2 * SHORTEST


def test_a_host_that_becomes_quick_again_soon_has_calls_to_answer() -> None:
    """It hung for ten minutes: what waits for it does not wait for another hour."""
    host = Host(5000, 60.0)
    host.run(600)
    host.seconds = 0.05
    host.run()
    assert host.served == 5000
    assert host.now <= 600 * 5


def test_a_job_alone_waits_for_one_call() -> None:
    crowd, wait = come_back(None, now=100.0, gap=0.25, drawn=0.5)
    assert (wait, crowd.since) == (0.375, 100.0)


def test_a_wait_is_bounded_whatever_the_gap() -> None:
    crowd = Crowd(since=0.0, booked_until=1e9, last_back=1e9)
    for now, most in ((1.0, SHORTEST), (100.0, 300.0), (1e6, LONGEST)):
        for drawn in (0.0, 0.5, 0.999):
            _, wait = come_back(crowd, now=now, gap=1e6, drawn=drawn)
            assert most / 2 <= wait <= most


def test_a_crowd_that_is_over_is_forgotten() -> None:
    old = Crowd(since=0.0, booked_until=1e5, last_back=2000.0)
    crowd, wait = come_back(old, now=2000.0 + SHORTEST + 1, gap=0.25, drawn=0.0)
    assert (crowd.since, wait) == (2000.0 + SHORTEST + 1, 0.25)
