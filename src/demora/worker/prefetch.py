"""How much to claim ahead of free slots: about 10 ms of work, as measured, since what is prefetched cannot be overtaken."""

AHEAD = 0.010  # seconds of work
MOST = 250
WINDOW = 0.005  # seconds between measurements
IDLE = 0.1  # seconds without a run or without an end, after which the rate is unknown


class Prefetch:
    """Measures how many jobs end per second of work. The time in which nothing runs does not count: a worker that waits for
    a slow disk would else claim less for it, and wait the more."""

    def __init__(self) -> None:
        self.jobs = 0
        self._since = 0.0
        self._ended = 0
        self._resting_since = 0.0

    def rests(self, now: float) -> None:
        """Nothing runs from now on."""
        self._resting_since = now

    def looks(self, now: float) -> None:
        """Work is looked for while nothing runs: after a long rest nothing is known of what will be found."""
        if now - self._resting_since > IDLE:
            self.jobs = 0

    def resumes(self, now: float) -> None:
        """The first run begins."""
        self._since += now - self._resting_since

    def finished(self, now: float) -> None:
        self._ended += 1
        passed = now - self._since
        if passed < WINDOW:
            return
        ahead = 0 if passed > IDLE else int(self._ended / passed * AHEAD)
        self.jobs = min((self.jobs + ahead) // 2 if self.jobs else ahead, MOST)
        self._since, self._ended = now, 0
