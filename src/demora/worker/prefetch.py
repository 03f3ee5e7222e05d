"""How much to claim ahead of free slots: about 10 ms of work, as measured, since what is prefetched cannot be overtaken."""

AHEAD = 0.010  # seconds of work
MOST = 500
WINDOW = 0.005  # seconds between measurements
IDLE = 0.1  # seconds without an end, after which the rate is unknown


class Prefetch:
    """Measures how many jobs end per second while the worker is busy."""

    def __init__(self) -> None:
        self.jobs = 0
        self._since = 0.0
        self._ended = 0

    def finished(self, now: float) -> None:
        self._ended += 1
        passed = now - self._since
        if passed < WINDOW:
            return
        ahead = 0 if passed > IDLE else int(self._ended / passed * AHEAD)
        self.jobs = min((self.jobs + ahead) // 2 if self.jobs else ahead, MOST)
        self._since, self._ended = now, 0
