"""How values look on the wire, over HTTP and with `--json`: camelCase JSON, RFC 3339 times in UTC, spans in milliseconds."""

from datetime import datetime, timedelta

import msgspec

from ..core.access import ApiKey, KeyLimits
from ..core.events import Event, EventJob, EventKind
from ..core.job import Attempt, Job
from ..core.pace import Pace
from ..core.retention import Keep
from ..core.spans import span_ms, timestamp
from ..core.webhook import message_id
from ..core.workers import WorkerRecord
from ..store.jobs import Count, Page, Queue
from ..store.paces import Pacing
from ..store.schedules import StoredSchedule
from ..store.webhooks import StoredSecret
from .actions import ActionState
from .bulk import BulkResult
from .counts import DeadLetterStats, Stats
from .recovery import Recovered
from .schedules import BackfillResult, SchedulePreview
from .statistics import PaceHistory
from .webhooks import DeliveryHistory

# Jobs


class AttemptView(msgspec.Struct, frozen=True, rename="camel"):
    started_at: str | None
    ended_at: str | None
    worker_id: str | None
    error: str | None
    traceback: str | None


class LogView(msgspec.Struct, frozen=True):
    at: str
    line: str


class JobView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job. Lists leave out the log and, over HTTP, payload and result unless the caller asks for them."""

    id: str
    name: str
    type: str
    queue: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
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
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
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


def job_view(job: Job, *, listed: bool = False) -> JobView:
    """Return the view of one job, or of a job `listed` with others."""
    return JobView(
        id=job.id,
        name=job.name,
        type=job.type,
        queue=job.queue,
        payload=_raw(job.payload_json),
        priority=job.priority.name,
        status=job.status.name,
        scheduled_at=timestamp(job.scheduled_at),
        created_at=timestamp(job.created_at),
        due_at=timestamp(job.due_at),
        started_at=_maybe(job.started_at),
        completed_at=_maybe(job.completed_at),
        max_retries=job.max_retries,
        retry_count=job.retry_count,
        retry_delay=span_ms(job.retry_delay),
        timeout=None if job.timeout is None else span_ms(job.timeout),
        attempts=[_attempt(attempt) for attempt in job.attempts],
        result=_raw(b"null" if job.result_json is None else job.result_json),
        error=job.error,
        progress=job.progress,
        progress_message=job.progress_message,
        worker_id=job.worker_id,
        cancel_requested_at=_maybe(job.cancel_requested_at),
        tags=list(job.tags),
        webhook_url=job.webhook_url,
        webhook_on_cancel=job.webhook_on_cancel,
        cause=job.cause,
        expires_at=_maybe(job.expires_at),
        unique=job.unique_key,
        schedule_name=job.schedule_name,
        slot_at=_maybe(job.slot_at),
        log=msgspec.UNSET if listed else [LogView(timestamp(line.at), line.line) for line in job.log],
    )


def page_view(page: Page, count: Count | None = None) -> PageView:
    shown = PageView([job_view(job, listed=True) for job in page.jobs], page.next, page.complete)
    return shown if count is None else msgspec.structs.replace(shown, count=count.jobs, count_complete=count.complete)


def receipt_view(job: Job) -> ReceiptView:
    return ReceiptView(
        id=job.id,
        status=job.status.name,
        created_at=timestamp(job.created_at),
        scheduled_at=timestamp(job.scheduled_at),
        due_at=timestamp(job.due_at),
    )


def _attempt(attempt: Attempt) -> AttemptView:
    started_at, ended_at = _maybe(attempt.started_at), _maybe(attempt.ended_at)
    return AttemptView(started_at, ended_at, attempt.worker_id, attempt.error, attempt.traceback)


def _raw(text: bytes) -> msgspec.Raw | msgspec.UnsetType:
    """Return stored JSON unchanged; nothing for a field that was not read."""
    return msgspec.Raw(text) if text else msgspec.UNSET


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


class RecoveredView(msgspec.Struct, frozen=True, rename="camel"):
    """A job that was taken from the worker that held it, and its new status."""

    id: str
    worker_id: str | None
    status: str


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
        completed_at=None if job.completed_at is None else timestamp(job.completed_at),
        error=job.error,
    )


def recovered_view(job: Recovered) -> RecoveredView:
    return RecoveredView(job.id, job.worker_id, job.status.name)


class JobCountsView(msgspec.Struct, frozen=True):
    """Counts under the names of the Task Scheduler Service: `priority` are the ready jobs, `dlq` the dead letters."""

    priority: int
    delayed: int
    processing: int
    dlq: int


class StatsView(JobCountsView, frozen=True, rename="camel"):
    """The counts of all queues together, and of each queue."""

    queues: dict[str, JobCountsView]
    more_queues: int
    counted_at: str


def stats_view(stats: Stats) -> StatsView:
    total = stats.total
    return StatsView(
        priority=total.ready,
        delayed=total.delayed,
        processing=total.processing,
        dlq=total.dead,
        queues={name: JobCountsView(one.ready, one.delayed, one.processing, one.dead) for name, one in stats.queues.items()},
        more_queues=stats.more_queues,
        counted_at=timestamp(stats.counted_at),
    )


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


def dead_letter_stats_view(stats: DeadLetterStats) -> DeadLetterStatsView:
    lists = (
        [
            DeadLetterCountView(one.name, one.jobs, timestamp(one.first_at), timestamp(one.last_at), one.sample_id)
            for one in counts
        ]
        for counts in (stats.by_type, stats.by_error, stats.by_queue, stats.by_age)
    )
    return DeadLetterStatsView(stats.jobs, stats.complete, *lists)


# Queues and paces


class RateView(msgspec.Struct, frozen=True):
    """A rate of a pace, with spans in milliseconds."""

    gap: int
    burst: int
    stagger: int


class PaceView(msgspec.Struct, frozen=True, rename="camel"):
    """A pace, who set it, and its state. `readyNow` jobs are due; `waitingForGap` of them have no release time yet. With
    `inherited`, it is the pace of all queues without one of their own. `history` says what the pace did in the last hour and
    day."""

    gap: int
    burst: int
    stagger: int
    rapid: RateView | None
    governs: str
    protect: list[str]
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


def queue_view(queue: Queue, pacing: Pacing | None = None, history: PaceHistory | None = None) -> QueueView:
    pause = queue.pause
    return QueueView(
        name=queue.name,
        ready=queue.ready,
        delayed=queue.delayed,
        processing=queue.processing,
        dead=queue.dead,
        paused=pause is not None,
        paused_at=None if pause is None else timestamp(pause.paused_at),
        pause_reason=None if pause is None else pause.reason,
        step=span_ms(queue.order.step),
        strict=queue.order.strict,
        head_start=span_ms(queue.order.head_start),
        keep_completed=_kept(queue.retention.completed),
        keep_cancelled=_kept(queue.retention.cancelled),
        keep_failed=_kept(queue.retention.failed),
        webhook_url=queue.webhook_url,
        pace=pace_view(pacing, history),
    )


def pace_view(pacing: Pacing | None, history: PaceHistory | None = None) -> PaceView | None:
    if pacing is None:
        return None
    pace, stats = pacing.pace, pacing.stats
    return PaceView(
        *(span_ms(pace.gap), pace.burst, span_ms(pace.rate(quiet=False).apart)),
        rapid=_rapid_view(pace),
        governs=pace.governs.value,
        protect=list(pace.protect),
        inherited=pacing.inherited,
        set_at=timestamp(pacing.set_at),
        set_by=pacing.set_by,
        mode=pace.mode(quiet=pacing.quiet),
        total_delayed=stats.total_delayed,
        ready_now=stats.ready_now,
        ready_in_hour=stats.ready_in_hour,
        waiting_for_gap=stats.waiting_for_gap,
        next_release_in_seconds=stats.next_release_in_seconds,
        time_since_last_release_seconds=stats.time_since_last_release_seconds,
        history=history,
    )


def _rapid_view(pace: Pace) -> RateView | None:
    rapid = pace.rapid
    return None if rapid is None else RateView(span_ms(rapid.gap), rapid.burst, span_ms(rapid.apart))


def _kept(keep: Keep | None) -> str | None:
    return None if keep is None else str(keep)


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


def worker_view(worker: WorkerRecord) -> WorkerView:
    return WorkerView(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        slots=worker.slots,
        queues=list(worker.queues),
        types=list(worker.types),
        started_at=_maybe(worker.started_at),
        heartbeat_ago=worker.heartbeat_ago // timedelta(milliseconds=1),
    )


# API keys


class LimitsView(msgspec.Struct, frozen=True, rename="camel"):
    """What an API key may submit. A null number means that of the settings, 0 no limit, an empty list all names."""

    max_queues: int | None
    max_types: int | None
    max_waiting: int | None
    rate: int | None
    queues: list[str]
    types: list[str]


class KeyView(msgspec.Struct, frozen=True, rename="camel"):
    """An API key without its secret. `key`, the text of the key, is there only in the answer that creates it."""

    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    namespace: str
    limits: LimitsView
    former_until: str | None
    key: str | msgspec.UnsetType = msgspec.UNSET


def key_view(key: ApiKey, now: datetime) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        scopes=[scope.value for scope in key.scopes],
        state=key.state(now),
        created_at=timestamp(key.created_at),
        expires_at=_maybe(key.expires_at),
        revoked_at=_maybe(key.revoked_at),
        last_used_at=_maybe(key.last_used_at),
        namespace=key.namespace,
        limits=_limits(key.limits),
        former_until=None if key.former(now) is None else _maybe(key.former_until),
    )


def made_key_view(key: ApiKey, text: str) -> KeyView:
    """Return the view of a new key with its text."""
    return msgspec.structs.replace(key_view(key, key.created_at), key=text)


def _limits(limits: KeyLimits) -> LimitsView:
    return LimitsView(
        max_queues=limits.max_queues,
        max_types=limits.max_types,
        max_waiting=limits.max_waiting,
        rate=limits.rate,
        queues=list(limits.queues),
        types=list(limits.types),
    )


# Webhooks


class TryView(msgspec.Struct, frozen=True, rename="camel"):
    """One try of a delivery: the HTTP status, null without an answer, and the start of the body."""

    at: str | None
    ended_at: str | None
    status: int | None
    excerpt: str | None
    error: str | None


class DeliveryView(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery about the end of a job. `id` is the job that delivers it, `webhookId` the id that the receiver sees."""

    id: str
    webhook_id: str
    url: str
    event: str
    status: str
    due_at: str
    tries: list[TryView]


class DeliveriesView(msgspec.Struct, frozen=True):
    deliveries: list[DeliveryView]


class SecretView(msgspec.Struct, frozen=True, rename="camel"):
    """A secret that signs webhooks, without its text."""

    id: str
    in_force: bool
    created_at: str
    ends_at: str | None


def deliveries_view(found: list[DeliveryHistory]) -> DeliveriesView:
    return DeliveriesView([_delivery(one) for one in found])


def secret_view(secret: StoredSecret, now: datetime) -> SecretView:
    return SecretView(secret.id, secret.in_force(now), timestamp(secret.created_at), _maybe(secret.ends_at))


def _delivery(history: DeliveryHistory) -> DeliveryView:
    job = history.delivery
    event = str(job.payload["message"]["status"])
    return DeliveryView(
        id=job.id,
        webhook_id=message_id(job.id),
        url=history.url,
        event=event,
        status=job.status.name,
        due_at=timestamp(job.due_at),
        tries=[TryView(_maybe(one.at), _maybe(one.ended_at), one.status, one.excerpt, one.error) for one in history.tries],
    )


# Schedules


class ScheduleView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A schedule: what a caller can set, and what became of it so far."""

    name: str
    type: str
    payload: msgspec.Raw
    cron: str | None
    every: int | None
    at: list[str] | None
    timezone: str
    queue: str
    priority: str
    max_retries: int
    retry_delay: int
    timeout: int | None
    tags: list[str]
    webhook_url: str | None
    enabled: bool
    reason: str | None
    start_at: str | None
    end_at: str | None
    jitter: int
    overlap: str
    missed: str
    missed_limit: int
    late_limit: int
    created_at: str
    last_run_at: str | None
    next_run_at: str | None
    run_count: int
    last_status: str | None
    origin: str
    changed_by: str | None


class SchedulesView(msgspec.Struct, frozen=True, rename="camel"):
    schedules: list[ScheduleView]
    next_cursor: str | None


class RunsView(msgspec.Struct, frozen=True):
    """Times at which a schedule fires."""

    timezone: str
    runs: list[str]


class SchedulePreviewView(msgspec.Struct, frozen=True):
    """When a schedule would fire, in words and in times."""

    words: str
    timezone: str
    runs: list[str]


class BackfillView(msgspec.Struct, frozen=True, rename="camel"):
    """The fire times that got a job, or would get one in a dry run, and those that had one."""

    added: list[str]
    had: list[str]
    dry_run: bool


def schedule_view(stored: StoredSchedule) -> ScheduleView:
    one = stored.schedule
    return ScheduleView(
        name=one.name,
        type=one.type,
        payload=msgspec.Raw(one.payload),
        cron=one.cron,
        every=None if one.every is None else span_ms(one.every),
        at=None if one.at is None else [timestamp(at) for at in one.at],
        timezone=one.timezone,
        queue=one.queue,
        priority=one.priority.name,
        max_retries=one.max_retries,
        retry_delay=span_ms(one.retry_delay),
        timeout=None if one.timeout is None else span_ms(one.timeout),
        tags=list(one.tags),
        webhook_url=one.webhook_url,
        enabled=one.enabled,
        reason=one.reason,
        start_at=_maybe(one.start_at),
        end_at=_maybe(one.end_at),
        jitter=span_ms(one.jitter),
        overlap=one.overlap.value,
        missed=one.missed.value,
        missed_limit=one.missed_limit,
        late_limit=span_ms(one.late_limit),
        created_at=timestamp(one.recorded_at),
        last_run_at=_maybe(stored.last_run_at),
        next_run_at=_maybe(stored.progress.next_at),
        run_count=stored.run_count,
        last_status=None if stored.last_status is None else stored.last_status.name,
        origin=stored.origin.value,
        changed_by=stored.changed_by,
    )


def schedules_view(found: list[StoredSchedule], limit: int | None = None) -> SchedulesView:
    """Return a page of `limit` schedules, of which one more than that was read to see whether another page follows."""
    shown = found[:limit]
    return SchedulesView([schedule_view(one) for one in shown], shown[-1].schedule.name if len(found) > len(shown) else None)


def preview_view(preview: SchedulePreview) -> SchedulePreviewView:
    return SchedulePreviewView(preview.words, preview.timezone, [timestamp(run) for run in preview.runs])


def backfill_view(result: BackfillResult, *, dry_run: bool) -> BackfillView:
    return BackfillView([timestamp(at) for at in result.added], [timestamp(at) for at in result.had], dry_run)


def _maybe(at: datetime | None) -> str | None:
    return None if at is None else timestamp(at)


# Events


class EventJobView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A job in an event, without its payload and its result."""

    id: str
    name: str
    type: str
    queue: str
    status: str
    attempt: int
    tags: list[str]
    due_at: str
    worker_id: str | None = None
    progress: float | None = None
    progress_message: str | None = None
    error: str | None = None


class EventPaceView(msgspec.Struct, frozen=True, rename="camel"):
    """The new pace of a queue, in an event."""

    gap: int
    burst: int
    stagger: int
    rapid: RateView | None
    governs: str
    protect: list[str]


class EventView(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An event. A field that says nothing about its kind is left out. `pace` is null if the pace was taken off."""

    event: str
    at: str | None = None
    queue: str | None = None
    job: EventJobView | None = None
    pace: EventPaceView | msgspec.UnsetType | None = msgspec.UNSET
    by: str | None = None
    reason: str | None = None
    position: str | None = None


def event_view(event: Event, *, position: bool = False) -> EventView:
    """Return an event as it looks on the wire, with its position if the transport does not carry that itself."""
    changed = event.kind is EventKind.PACE
    return EventView(
        event.kind.value,
        None if event.at is None else timestamp(event.at),
        event.queue,
        None if event.job is None else _event_job_view(event.job),
        _event_pace_view(event.pace) if changed else msgspec.UNSET,
        event.by,
        event.reason,
        event.position if position else None,
    )


def _event_job_view(job: EventJob) -> EventJobView:
    return EventJobView(
        *(job.id, job.name, job.type, job.queue, job.status.name, job.attempt, list(job.tags), timestamp(job.due_at)),
        worker_id=job.worker_id,
        progress=job.progress,
        progress_message=job.progress_message,
        error=job.error,
    )


def _event_pace_view(pace: Pace | None) -> EventPaceView | None:
    if pace is None:
        return None
    return EventPaceView(
        *(span_ms(pace.gap), pace.burst, span_ms(pace.rate(quiet=False).apart), _rapid_view(pace)),
        governs=pace.governs.value,
        protect=list(pace.protect),
    )
