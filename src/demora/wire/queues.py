"""Queues on the wire, with their counts and paces, and the workers that serve them."""

from datetime import datetime
from typing import Any

import msgspec

from ..client.counts import JobCounts, Stats
from ..client.statistics import PaceHistory
from ..client.workers.recovery import Recovered
from ..core.job import QueueOrder
from ..core.pace import Pace, Rate
from ..core.retention import Keep, Retention, keep
from ..core.spans import MILLISECOND, span_ms, timestamp
from ..core.workers import WorkerRecord
from ..store.jobs import Pause, Queue
from ..store.paces import Pacing
from .shape import Shape


class RateView(msgspec.Struct, frozen=True):
    """A rate of a pace, with spans in milliseconds."""

    gap: int
    burst: int
    stagger: int


class PaceRuleView(msgspec.Struct, frozen=True, rename="camel"):
    """A pace alone, as an event tells it."""

    gap: int
    burst: int
    stagger: int
    rapid: RateView | None
    governs: str
    protect: list[str]


class PaceView(PaceRuleView, frozen=True, rename="camel"):
    """A pace, who set it, and its state. `readyNow` jobs are due; `waitingForGap` of them have no release time yet. With
    `inherited`, it is the pace of all queues without one of their own. `history` says what the pace did in the last hour and
    day."""

    inherited: bool
    set_at: str
    set_by: str
    mode: str
    total_delayed: int
    ready_now: int
    ready_in_hour: int
    waiting_for_gap: int
    next_release_in_seconds: float | None
    time_since_last_release_seconds: float | None
    history: PaceHistory | None = None


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """A queue: its counts, pause, order, webhook and pace. The `keep…` fields are null where the settings apply."""

    name: str
    ready: int
    delayed: int
    processing: int
    dead: int
    paused: bool
    paused_at: str | None
    pause_reason: str | None
    step: int
    strict: bool
    head_start: int
    keep_completed: str | None
    keep_cancelled: str | None
    keep_failed: str | None
    webhook_url: str | None
    pace: PaceView | None


class QueuesView(msgspec.Struct, frozen=True, rename="camel"):
    queues: list[QueueView]
    next_cursor: str | None


_RATE = Shape(Rate, RateView)
_RULE = Shape(Pace, PaceRuleView, rapid=_RATE)
_PACE = Shape(Pace, PaceView, rapid=_RATE)
read_pace_rule = _RULE.read
_QUEUE = Shape(Queue, QueueView)
_ORDER = Shape(QueueOrder, QueueView)


def queue_view(queue: Queue, pacing: Pacing | None = None, history: PaceHistory | None = None) -> QueueView:
    pause, order, kept = queue.pause, queue.order, queue.retention
    return _QUEUE.write(
        queue,
        paused=pause is not None,
        paused_at=None if pause is None else timestamp(pause.paused_at),
        pause_reason=None if pause is None else pause.reason,
        step=span_ms(order.step),
        strict=order.strict,
        head_start=span_ms(order.head_start),
        keep_completed=_kept(kept.completed),
        keep_cancelled=_kept(kept.cancelled),
        keep_failed=_kept(kept.failed),
        pace=pace_view(pacing, history),
    )


def read_queue(view: QueueView) -> Queue:
    """Return the queue of a view, without its pace."""
    kept = (view.keep_completed, view.keep_cancelled, view.keep_failed)
    return _QUEUE.read(
        view,
        order=_ORDER.read(view),
        pause=None if view.paused_at is None else Pause(view.pause_reason, datetime.fromisoformat(view.paused_at)),
        retention=Retention(*(None if text is None else keep(text, "keep") for text in kept)),
    )


def pace_view(pacing: Pacing | None, history: PaceHistory | None = None) -> PaceView | None:
    if pacing is None:
        return None
    pace = pacing.pace
    return _PACE.write(
        pace,
        **_rates(pace),
        inherited=pacing.inherited,
        set_at=timestamp(pacing.set_at),
        set_by=pacing.set_by,
        mode=pace.mode(quiet=pacing.quiet),
        history=history,
        **msgspec.structs.asdict(pacing.stats),
    )


def pace_rule_view(pace: Pace) -> PaceRuleView:
    return _RULE.write(pace, **_rates(pace))


def _rates(pace: Pace) -> dict[str, Any]:
    """Return the rates of a pace as its view has them: with the stagger that follows, if none was given."""
    rapid = pace.rapid
    return {
        "stagger": span_ms(pace.rate(quiet=False).apart),
        "rapid": None if rapid is None else _RATE.write(rapid, stagger=span_ms(rapid.apart)),
    }


def _kept(keep: Keep | None) -> str | None:
    return None if keep is None else str(keep)


# Counts


class JobCountsView(msgspec.Struct, frozen=True):
    """The counts of jobs, under the names that they have over HTTP: `priority` are the ready jobs, `dlq` the dead
    letters."""

    priority: int
    delayed: int
    processing: int
    dlq: int


class StatsView(JobCountsView, frozen=True, rename="camel"):
    """The counts of all queues together, and of each queue."""

    queues: dict[str, JobCountsView]
    more_queues: int
    counted_at: str


_COUNTS = Shape(JobCounts, JobCountsView, priority="ready", dlq="dead")


def stats_view(stats: Stats) -> StatsView:
    total = _COUNTS.write(stats.total)
    return StatsView(
        *(total.priority, total.delayed, total.processing, total.dlq),
        queues={name: _COUNTS.write(one) for name, one in stats.queues.items()},
        more_queues=stats.more_queues,
        counted_at=timestamp(stats.counted_at),
    )


def read_stats(view: StatsView) -> Stats:
    queues = {name: _COUNTS.read(one) for name, one in view.queues.items()}
    return Stats(_COUNTS.read(view), queues, view.more_queues, datetime.fromisoformat(view.counted_at))


# Workers


class WorkerView(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    host: str
    pid: int
    slots: int
    queues: list[str]
    types: list[str]
    started_at: str | None
    heartbeat_ago: int


class WorkersView(msgspec.Struct, frozen=True):
    workers: list[WorkerView]


class RecoveredView(msgspec.Struct, frozen=True, rename="camel"):
    """A job that was taken from the worker that held it, and its new status."""

    id: str
    worker_id: str | None
    status: str


class RecoveryView(msgspec.Struct, frozen=True):
    recovered: list[RecoveredView]


_WORKER = Shape(WorkerRecord, WorkerView)
_RECOVERED = Shape(Recovered, RecoveredView)
read_worker, read_recovered = _WORKER.read, _RECOVERED.read


def worker_view(worker: WorkerRecord) -> WorkerView:
    return _WORKER.write(worker, heartbeat_ago=worker.heartbeat_ago // MILLISECOND)  # rounded down, unlike other spans


def recovered_view(job: Recovered) -> RecoveredView:
    return _RECOVERED.write(job)
