"""Jobs on the wire: one job, pages of jobs, dead letters, and the results of verbs on many jobs."""

import msgspec

from ..client.actions import ActionState
from ..client.bulk import BulkResult
from ..client.counts import DeadLetterCount, DeadLetterStats
from ..core.job import Attempt, Job, Lane, LogLine, Priority, lane_for
from ..core.spans import span_ms, timestamp
from ..core.states import Status
from ..store.jobs import Count, Page
from .shape import Shape, time_or_none


class AttemptView(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str | None
    ended_at: str | None
    worker_id: str | None
    error: str | None
    traceback: str | None


class LogView(msgspec.Struct, frozen=True):
    at: str
    line: str


class _ListedJob(msgspec.Struct, frozen=True, rename="camel"):
    """What every view of a job shows."""

    id: str
    name: str
    type: str
    queue: str
    priority: str
    status: str
    scheduled_at: str
    created_at: str
    due_at: str
    started_at: str | None
    completed_at: str | None
    max_retries: int
    retry_count: int
    retry_delay: int
    timeout: int | None
    attempts: list[AttemptView]
    error: str | None
    progress: float | None
    progress_message: str | None
    worker_id: str | None
    cancel_requested_at: str | None
    tags: list[str]
    webhook_url: str | None
    webhook_on_cancel: bool
    cause: str | None
    expires_at: str | None
    unique: str | None
    schedule_name: str | None
    slot_at: str | None


class JobView(_ListedJob, frozen=True, rename="camel", kw_only=True):
    """A job. Lists leave out the log and, over HTTP, payload and result unless the caller asks for them."""

    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    log: list[LogView] | msgspec.UnsetType = msgspec.UNSET


class PageView(msgspec.Struct, frozen=True, rename="camel"):
    """A page of jobs. If it is not complete, the search ended early, and the cursor continues it."""

    jobs: list[JobView]
    next_cursor: str | None
    complete: bool = True
    count: int | msgspec.UnsetType = msgspec.UNSET
    count_complete: bool | msgspec.UnsetType = msgspec.UNSET


class ReceiptView(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a job that a key with the scope to submit may see."""

    id: str
    status: str
    created_at: str
    scheduled_at: str
    due_at: str


_PRIORITIES = {priority: priority.name for priority in Priority}  # to ask a member takes several times as long
_STATUSES = {status: status.name for status in Status}
_ATTEMPT = Shape(Attempt, AttemptView)
_JOB = Shape(Job, JobView, unique="unique_key", attempts=_ATTEMPT, log=Shape(LogLine, LogView))


def job_view(job: Job, *, listed: bool = False) -> JobView:
    """Return the view of one job, or of a job `listed` with others. A page has many jobs, so the fields are written
    out here, in their order: a `Shape` and names would each take several times as long."""
    scheduled_at = timestamp(job.scheduled_at)
    return JobView(
        job.id,
        job.name,
        job.type,
        job.queue,
        _PRIORITIES[job.priority],
        _STATUSES[job.status],
        scheduled_at,
        timestamp(job.created_at),
        scheduled_at if job.due_at == job.scheduled_at else timestamp(job.due_at),
        time_or_none(job.started_at),
        time_or_none(job.completed_at),
        job.max_retries,
        job.retry_count,
        span_ms(job.retry_delay),
        None if job.timeout is None else span_ms(job.timeout),
        [_attempt(attempt) for attempt in job.attempts],
        job.error,
        job.progress,
        job.progress_message,
        job.worker_id,
        time_or_none(job.cancel_requested_at),
        list(job.tags),
        job.webhook_url,
        job.webhook_on_cancel,
        job.cause,
        time_or_none(job.expires_at),
        job.unique_key,
        job.schedule_name,
        time_or_none(job.slot_at),
        payload=_raw(job.payload_json),
        result=_raw(b"null" if job.result_json is None else job.result_json),
        log=msgspec.UNSET if listed else [LogView(timestamp(line.at), line.line) for line in job.log],
    )


def read_job(view: JobView) -> Job:
    """Return the job of a view. The view leaves out what only a store needs, token, generation and lease, so the job has
    their defaults."""
    attempts = tuple(_ATTEMPT.read(run, token=n) for n, run in enumerate(view.attempts, 1))
    return _JOB.read(
        view,
        payload_json=_json(view.payload),
        result_json=_result(view),
        lane=_lane(view),
        attempt=view.retry_count + 1 if attempts else 0,
        attempts=attempts,
    )


def page_view(page: Page, count: Count | None = None) -> PageView:
    shown = PageView([job_view(job, listed=True) for job in page.jobs], page.next, page.complete)
    return shown if count is None else msgspec.structs.replace(shown, count=count.jobs, count_complete=count.complete)


def read_page(view: PageView) -> Page:
    return Page([read_job(job) for job in view.jobs], view.next_cursor, view.complete)


def receipt_view(job: Job) -> ReceiptView:
    return ReceiptView(
        id=job.id,
        status=job.status.name,
        created_at=timestamp(job.created_at),
        scheduled_at=timestamp(job.scheduled_at),
        due_at=timestamp(job.due_at),
    )


def _attempt(attempt: Attempt) -> AttemptView:
    started_at, ended_at = time_or_none(attempt.started_at), time_or_none(attempt.ended_at)
    return AttemptView(started_at, ended_at, attempt.worker_id, attempt.error, attempt.traceback)


def _raw(text: bytes) -> msgspec.Raw | msgspec.UnsetType:
    """Return stored JSON unchanged; nothing for a field that was not read."""
    return msgspec.Raw(text) if text else msgspec.UNSET


def _json(raw: msgspec.Raw | msgspec.UnsetType) -> bytes:
    return b"" if isinstance(raw, msgspec.UnsetType) else bytes(raw)


def _result(view: JobView) -> bytes | None:
    """Return the result; None if the job has none. A handler that returns nothing has the result null."""
    result = _json(view.result)
    return None if result == b"null" and view.status != Status.COMPLETED.name else result


def _lane(view: JobView) -> Lane:
    if view.status == Status.RETRYING.name:
        return Lane.RETRY
    return lane_for(view.scheduled_at, view.created_at)


# Many jobs


class BulkResultView(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a verb on many jobs. `skipped` jobs had changed in between; `more` says that the limit ended it."""

    matched: int
    done: int
    skipped: int
    more: bool
    dry_run: bool


class ActionView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An action on many jobs and how far it is. `status` is that of the job with the same id, which carries it out."""

    id: str
    action: str
    filter: str
    dry_run: bool
    by: str
    status: str
    matched: int
    done: int
    skipped: int
    created_at: str
    completed_at: str | None
    error: str | None


class DeadLetterCountView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    jobs: int
    first_at: str
    last_at: str
    sample_id: str


class DeadLetterStatsView(msgspec.Struct, frozen=True, rename="camel"):
    """The dead letters by what they have in common. If it is not `complete`, only the newest 100,000 are counted."""

    jobs: int
    complete: bool
    by_type: list[DeadLetterCountView]
    by_error: list[DeadLetterCountView]
    by_queue: list[DeadLetterCountView]
    by_age: list[DeadLetterCountView]


_FAILED = Shape(DeadLetterCount, DeadLetterCountView)
_DEAD_LETTERS = Shape(
    DeadLetterStats, DeadLetterStatsView, by_type=_FAILED, by_error=_FAILED, by_queue=_FAILED, by_age=_FAILED
)


def bulk_result_view(result: BulkResult, *, dry_run: bool) -> BulkResultView:
    return BulkResultView(result.matched, result.done, result.skipped, result.more, dry_run)


def action_view(state: ActionState) -> ActionView:
    order, job, result = state.order, state.job, state.result
    return ActionView(
        id=job.id,
        action=order.action.value,
        filter=order.filter,
        dry_run=order.dry_run,
        by=order.by,
        status=job.status.name,
        matched=result.matched,
        done=result.done,
        skipped=result.skipped,
        created_at=timestamp(job.created_at),
        completed_at=time_or_none(job.completed_at),
        error=job.error,
    )


def dead_letter_stats_view(stats: DeadLetterStats) -> DeadLetterStatsView:
    return _DEAD_LETTERS.write(stats)
