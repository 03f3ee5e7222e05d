"""The text of `GET /metrics`: the jobs by queue and state, the paces, and what this process has measured."""

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from ..client.counts import JobCounts, Stats
from ..core.pace import EVERY_QUEUE
from ..core.statistics import OTHER
from ..core.workers import WorkerRecord
from ..errors import StoreError
from ..store.paces import Pacing
from .measured import Histogram, Measured, family

LIMIT = 5.0  # seconds that the database has to answer
MOST_PACES = 1000  # named in the answer: those that hold the most jobs


class Counting(Protocol):
    """What a scrape asks of the client."""

    async def stats(self) -> Stats: ...
    async def workers(self) -> list[WorkerRecord]: ...
    async def pacings(self) -> list[Pacing]: ...
    def line_used(self) -> bool | None: ...


class ServiceMetrics:
    """Writes the metrics of a service. `measured` takes the facts of its worker.

    A scrape counts no jobs itself: it takes the count that all callers share, and reads the paces once for each count. If
    the database does not answer in time, the text says so and has only what this process has measured.
    """

    media = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self.measured = Measured()
        self._turn = asyncio.Lock()
        self._round_trips = Histogram()
        self._counted_at: datetime | None = None
        self._paces: list[Pacing] = []

    async def text(self, client: Counting) -> bytes:
        """Return all metrics as Prometheus reads them."""
        self.measured.line_used = client.line_used
        registry = CollectorRegistry()
        registry.register(await self._look(client))
        registry.register(_RoundTrips(self._round_trips))
        registry.register(self.measured)
        return await asyncio.to_thread(generate_latest, registry)  # may take a while with a thousand pairs

    async def _look(self, client: Counting) -> "_Database":
        try:
            async with asyncio.timeout(LIMIT), self._turn:
                await self._ping(client)
                stats = await client.stats()
                if stats.counted_at != self._counted_at:
                    self._paces, self._counted_at = await client.pacings(), stats.counted_at
                return _Database(stats, self._paces)
        except (StoreError, TimeoutError):
            return _Database(None, [])

    async def _ping(self, client: Counting) -> None:
        """Measure a short read. A service without a worker has no other measure of its database."""
        began = time.perf_counter()
        try:
            await client.workers()
        finally:
            self._round_trips.add(time.perf_counter() - began)


class _RoundTrips(Collector):
    """How long the database took to answer the scrapes so far."""

    def __init__(self, measured: Histogram) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        words = "How long a short read of the database took, one for each scrape."
        yield family("demora_database_round_trip_seconds", words, [((), self._measured)])


class _Database(Collector):
    """The state of the database at one scrape; no `stats` if it did not answer."""

    def __init__(self, stats: Stats | None, paces: list[Pacing]) -> None:
        self._stats, self._paces = stats, [pacing for pacing in paces if pacing.queue != EVERY_QUEUE]

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("demora_database_up", "1 if the database answered this scrape.", self._stats is not None)
        if self._stats is None:
            return
        yield _jobs(self._stats)
        held = GaugeMetricFamily("demora_pace_held_jobs", "Due jobs that the pace of their queue holds.", labels=["queue"])
        wait = GaugeMetricFamily(
            "demora_pace_next_release_seconds", "Until the pace of a queue releases its next job.", labels=["queue"]
        )
        for pacing in sorted(self._paces, key=lambda one: (-one.held, one.queue))[:MOST_PACES]:
            held.add_metric([pacing.queue], pacing.held)
            if (release := pacing.next_release_at) is not None:
                wait.add_metric([pacing.queue], max((release - pacing.now).total_seconds(), 0.0))
        yield held
        yield wait


def _jobs(stats: Stats) -> Metric:
    """Return the counts of the queues with the most jobs, and under `other` those of the rest."""
    family = GaugeMetricFamily("demora_jobs", "Jobs by queue and state.", labels=["queue", "state"])
    named = dict(stats.queues)
    if stats.more_queues:
        named[OTHER] = _rest(stats)
    for queue, counts in named.items():
        for state, count in msgspec.structs.asdict(counts).items():
            family.add_metric([queue, state], count)
    return family


def _rest(stats: Stats) -> JobCounts:
    """Return the jobs of all queues that are not named, and of one that is itself named `other`."""
    total = msgspec.structs.astuple(stats.total)
    named = [msgspec.structs.astuple(counts) for queue, counts in stats.queues.items() if queue != OTHER]
    return JobCounts(*(whole - sum(one) for whole, one in zip(total, zip(*named, strict=True), strict=True)))
