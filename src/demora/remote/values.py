"""The views of the wire as the values that a `Client` returns.

The wire leaves out what only a store needs: of a job its lane, token, generation and lease. They have their defaults here.
"""

from datetime import datetime, timedelta

import msgspec

from ..client.counts import JobCounts, Stats
from ..client.views import JobCountsView, JobView, PageView, QueueView, StatsView, WorkerView
from ..core.job import Attempt, Job, Lane, LogLine, Priority, QueueOrder
from ..core.retention import Keep, Retention, keep
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..store.jobs import Page, Pause, Queue


def job_of(view: JobView) -> Job:
    created_at, scheduled_at = _time(view.created_at), _time(view.scheduled_at)
    runs = tuple(
        Attempt(n, _maybe(run.started_at), _maybe(run.ended_at), run.worker_id, run.error, run.traceback)
        for n, run in enumerate(view.attempts, 1)
    )
    lines = () if view.log is msgspec.UNSET else tuple(LogLine(_time(line.at), line.line) for line in view.log)
    return Job(
        id=view.id,
        name=view.name,
        type=view.type,
        queue=view.queue,
        payload_json=_json(view.payload),
        priority=Priority[view.priority],
        status=Status[view.status],
        lane=_lane(view),
        created_at=created_at,
        scheduled_at=scheduled_at,
        due_at=_time(view.due_at),
        max_retries=view.max_retries,
        retry_delay=_ms(view.retry_delay),
        timeout=None if view.timeout is None else _ms(view.timeout),
        tags=tuple(view.tags),
        webhook_url=view.webhook_url,
        attempt=view.retry_count + 1 if runs else 0,
        retry_count=view.retry_count,
        started_at=_maybe(view.started_at),
        completed_at=_maybe(view.completed_at),
        worker_id=view.worker_id,
        cancel_requested_at=_maybe(view.cancel_requested_at),
        progress=view.progress,
        progress_message=view.progress_message,
        result_json=_result(view),
        error=view.error,
        expires_at=_maybe(view.expires_at),
        unique_key=view.unique,
        webhook_on_cancel=view.webhook_on_cancel,
        cause=view.cause,
        schedule_name=view.schedule_name,
        slot_at=_maybe(view.slot_at),
        attempts=runs,
        log=lines,
    )


def page_of(view: PageView) -> Page:
    return Page([job_of(job) for job in view.jobs], view.next_cursor, view.complete)


def queue_of(view: QueueView) -> Queue:
    return Queue(
        name=view.name,
        order=QueueOrder(_ms(view.step), view.strict, _ms(view.head_start)),
        pause=None if view.paused_at is None else Pause(view.pause_reason, _time(view.paused_at)),
        retention=Retention(_kept(view.keep_completed), _kept(view.keep_cancelled), _kept(view.keep_failed)),
        ready=view.ready,
        delayed=view.delayed,
        processing=view.processing,
        dead=view.dead,
        webhook_url=view.webhook_url,
    )


def stats_of(view: StatsView) -> Stats:
    queues = {name: _counts(one) for name, one in view.queues.items()}
    return Stats(_counts(view), queues, view.more_queues, _time(view.counted_at))


def worker_of(view: WorkerView) -> WorkerRecord:
    return WorkerRecord(
        id=view.id,
        host=view.host,
        pid=view.pid,
        slots=view.slots,
        queues=tuple(view.queues),
        types=tuple(view.types),
        started_at=_maybe(view.started_at),
        heartbeat_ago=_ms(view.heartbeat_ago),
    )


def _counts(view: JobCountsView) -> JobCounts:
    return JobCounts(view.priority, view.delayed, view.processing, view.dlq)


def _lane(view: JobView) -> Lane:
    if view.status == Status.RETRYING.name:
        return Lane.RETRY
    return Lane.SCHEDULED if view.scheduled_at > view.created_at else Lane.REALTIME


def _result(view: JobView) -> bytes | None:
    """Return the result; None if the job has none. A handler that returns nothing has the result null."""
    result = _json(view.result)
    return None if result == b"null" and view.status != Status.COMPLETED.name else result


def _json(raw: msgspec.Raw | msgspec.UnsetType) -> bytes:
    return b"" if isinstance(raw, msgspec.UnsetType) else bytes(raw)


def _kept(text: str | None) -> Keep | None:
    return None if text is None else keep(text, "keep")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else _time(text)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
