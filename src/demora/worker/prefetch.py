"""How far ahead of its free slots a worker claims."""

AHEAD = 0.010  # seconds of work that a worker claims ahead of its free slots
MOST_AHEAD = 250  # jobs
WINDOW = 0.005  # seconds between measurements of the rate
IDLE = 0.1  # seconds without a run or without an end, after which the rate is unknown


class Prefetch:
    """How many jobs a worker claims ahead of its free slots: about 10 ms of work at the measured rate. It must stay small,
    since an urgent job cannot overtake a prefetched one.

    The rate is the number of jobs that end per second of work. Time in which nothing runs is not counted: otherwise a worker
    that waits for a slow disk would claim less, and so wait even more often.
    """

    def __init__(self) -> None:
        self.jobs = 0
        self._since = 0.0
        self._ended = 0
        self._idle_since = 0.0

    def idle(self, now: float) -> None:
        """Note that the last run has ended."""
        self._idle_since = now

    def before_claim(self, now: float) -> None:
        """Forget the rate if the worker has been idle for long. Call this before a claim while nothing runs."""
        if now - self._idle_since > IDLE:
            self.jobs = 0

    def busy(self, now: float) -> None:
        """Note that the first run begins after an idle time."""
        self._since += now - self._idle_since

    def job_ended(self, now: float) -> None:
        """Count one ended run, and measure the rate once per window."""
        self._ended += 1
        passed = now - self._since
        if passed < WINDOW:
            return
        ahead = 0 if passed > IDLE else int(self._ended / passed * AHEAD)
        self.jobs = min((self.jobs + ahead) // 2 if self.jobs else ahead, MOST_AHEAD)
        self._since, self._ended = now, 0
