"""What one process has measured of its worker: counters and histograms, as Prometheus reads them.

The worker's loop writes plain numbers, and a scrape on another thread reads them. A scrape may see one fact of a job and
not yet the next; no fact is lost.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..core.states import Status
from ..core.statistics import MOST_PAIRS, OTHER
from ..store.jobs import ClaimedJob, Lease, Settlement
from ..worker.measures import Measures

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # seconds
RETURNED = "returned"  # the outcome of a run that does not count as an attempt
OUTCOMES = ("completed", "retrying", "failed", "cancelled", RETURNED)
_NAMES = tuple(status.name.lower() for status in Status)  # by number: an enum as the key of a dict is slow
_LABELS = [*map(str, BOUNDS), "+Inf"]


class Histogram:
    """How many spans were at most as long as each of the bounds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts, self.sum = [0] * len(_LABELS), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the bounds with the number of spans up to each."""
        counts, total, found = self.counts[:], 0, []
        for label, count in zip(_LABELS, counts, strict=True):
            total += count
            found.append((label, float(total)))
        return found


class Pair:
    """The measurements of each queue and type. The pairs of a queue share its `lateness`. Each outcome begins at 0, since
    Prometheus sees no increase in a counter that begins at 1."""

    __slots__ = ("lateness", "outcomes", "ran")

    def __init__(self, lateness: Histogram) -> None:
        self.lateness, self.ran, self.outcomes = lateness, Histogram(), dict.fromkeys(OUTCOMES, 0)


class Measured(Measures, Collector):
    """Counts the facts of a worker, and yields them at each scrape. It names the first 1,000 pairs of a queue and a
    type."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._queues: dict[str, Histogram] = {}  # how late the jobs of a queue started
        self._ended: dict[Lease, Pair] = {}  # the jobs that are being settled
        self._waited, self._claims, self._settlements = Histogram(), Histogram(), Histogram()
        self._lost = self._lapsed = 0
        self._slots: int | None = None
        self._busy: Callable[[], int] = lambda: 0
        self.line_used: Callable[[], bool | None] = lambda: None  # None if there is no line

    # The facts

    def working(self, slots: int, busy: Callable[[], int]) -> None:
        self._slots, self._busy = slots, busy

    def claimed(self, seconds: float) -> None:
        self._claims.add(seconds)

    def started(self, job: ClaimedJob, *, waited: float, now: float) -> None:
        self._waited.add(waited)
        if job.lease.token == 1:  # a later claim may follow a retry or a snooze, whose due time the worker does not know
            self._pair(job).lateness.add(max(now - job.scheduled_at.timestamp(), 0.0))

    def ended(self, job: ClaimedJob, ran: timedelta | None) -> None:
        pair = self._ended[job.lease] = self._pair(job)
        if ran is not None:
            pair.ran.add(ran.total_seconds())

    def recorded(self, seconds: float) -> None:
        self._settlements.add(seconds)

    def settled(self, settlement: Settlement, status: Status | None) -> None:
        pair = self._ended.pop(settlement.report.lease, None)
        if status is None:
            self._lost += 1
        elif pair is not None:
            outcome = _NAMES[status] if settlement.verdict.counts or status.ended else RETURNED
            pair.outcomes[outcome] = pair.outcomes.get(outcome, 0) + 1

    def lost(self, lease: Lease) -> None:
        self._lost += 1

    def lapsed(self, leases: int) -> None:
        self._lapsed += leases

    def _pair(self, job: ClaimedJob) -> Pair:
        return self._pairs.get((job.queue, job.type)) or self._new_pair(job.queue, job.type)

    def _new_pair(self, queue: str, type: str) -> Pair:
        """Name a pair, or return the one of all others if there are enough names."""
        if len(self._pairs) >= MOST_PAIRS:
            queue = type = OTHER
        named = self._pairs.get((queue, type))
        if named is None:
            named = self._pairs[queue, type] = Pair(self._queues.setdefault(queue, Histogram()))
        return named

    # The scrape

    def collect(self) -> Iterator[Metric]:
        pairs, queues = list(self._pairs.items()), list(self._queues.items())
        yield _outcomes(pairs)
        yield family(
            "demora_job_lateness_seconds",
            "From the due time of a job to its first start.",
            [((queue,), histogram) for queue, histogram in queues],
            labels=["queue"],
        )
        yield family("demora_job_wait_seconds", "From the claim of a job to its start.", [((), self._waited)])
        yield family(
            "demora_job_run_seconds",
            "How long a run took.",
            [(name, pair.ran) for name, pair in pairs],
            labels=["queue", "type"],
        )
        yield family("demora_claim_seconds", "How long a claim took, a round trip to the database.", [((), self._claims)])
        yield family("demora_settle_seconds", "How long it took to record a batch of outcomes.", [((), self._settlements)])
        yield CounterMetricFamily("demora_leases_lost", "Leases that this worker lost while it held them.", self._lost)
        yield CounterMetricFamily("demora_leases_lapsed", "Lapsed leases of others that this worker settled.", self._lapsed)
        if self._slots is not None:
            yield GaugeMetricFamily("demora_worker_slots", "How many jobs this worker runs at a time.", self._slots)
            yield GaugeMetricFamily("demora_worker_busy_slots", "How many of its slots are taken.", self._busy())
        used = self.line_used()
        if used is not None:
            yield GaugeMetricFamily("demora_line_used", "1 if the Redis line hands out the jobs, 0 if not.", used)


def _outcomes(pairs: Sequence[tuple[tuple[str, str], Pair]]) -> Metric:
    family = CounterMetricFamily(
        "demora_jobs_settled",
        "Recorded runs, by what became of the job.",
        labels=["queue", "type", "outcome"],
    )
    for (queue, type), pair in pairs:
        for outcome, count in list(pair.outcomes.items()):
            family.add_metric([queue, type, outcome], count)
    return family


def family(
    name: str, help: str, histograms: Iterable[tuple[Sequence[str], Histogram]], *, labels: Sequence[str] = ()
) -> Metric:
    """Return histograms as Prometheus reads them, with the values of their labels."""
    found = HistogramMetricFamily(name, help, labels=labels)
    for values, histogram in histograms:
        found.add_metric(values, histogram.buckets(), histogram.sum)
    return found
