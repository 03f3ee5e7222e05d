"""The table of routes, from which the router and the OpenAPI document are built."""

import functools
from typing import Any

from ..client.diagnostics import Health
from ..client.statistics import MetricsOverview, QueuesMetrics, TypesMetrics, WorkersMetrics
from ..client.why import Why
from ..core.access import Scope
from ..wire.jobs import ActionView, BulkResultView, DeadLetterStatsView, JobView, PageView, ReceiptView
from ..wire.queues import QueuesView, QueueView, RecoveryView, StatsView, WorkersView
from ..wire.requests import (
    ActionRequest,
    BatchRequest,
    DeadLettersQuery,
    DeadLettersRequest,
    EventsQuery,
    FindQuery,
    JobChange,
    JobRequest,
    MetricsQuery,
    NamedMetricsQuery,
    NewSchedule,
    Nothing,
    PauseRequest,
    PreviewRequest,
    QueueRequest,
    QueuesQuery,
    RunsQuery,
    ScheduleChange,
    ScheduleJobsQuery,
    StatsQuery,
    WaitQuery,
)
from ..wire.schedules import RunsView, SchedulePreviewView, SchedulesView, ScheduleView
from ..wire.webhooks import DeliveriesView
from ..wire.worker_protocol import (
    ClaimBody,
    ClaimedView,
    RegisteredView,
    RenewedView,
    RenewRequest,
    SettledView,
    SettleRequest,
    WorkerRequest,
)
from . import reference_page
from .openapi import describe
from .operations import events, jobs, metrics, queues, schedules, workers
from .operations.operation import ApiCall, Operation, Reply
from .reading import ONE_BATCH

_JOBS, _JOB, _QUEUES = "/api/v1/jobs", "/api/v1/jobs/{id}", "/api/v1/queues"
_DEAD, _METRICS = "/api/v1/dead-letters", "/api/v1/metrics"
_SCHEDULES, _SCHEDULE = "/api/v1/schedules", "/api/v1/schedules/{name}"
_WORKERS, _WORKER = "/api/v1/workers", "/api/v1/workers/{workerId}"
_KEY = {"Idempotency-Key": "The same as the field idempotencyKey."}
_PREFER = {
    "Prefer": "`wait=10`: wait up to 10 s (at most 60) for the end of the job: 200, or else 202; `respond-async`: 202."
}
_IF_MATCH = {"If-Match": "The ETag of the job as you have read it: 412 if it has changed since."}
_LAST_EVENT = {"Last-Event-ID": "The id of the last event that you have heard: the ends since then come first."}


async def show_openapi(call: ApiCall) -> Reply:
    """Describe every route (OpenAPI 3.1)."""
    servers = {"servers": [{"url": call.base}]} if call.base else {}
    return Reply(200, _document() | servers, compressible=True)


async def show_docs(call: ApiCall) -> Reply:
    """Show this reference as a page for people."""
    return Reply(200, _page(), reference_page.HEADERS, reference_page.HTML, compressible=True)


# The health checks have no scope: a monitor needs no key.
ROUTES: tuple[Operation, ...] = (
    Operation("GET", "/", Scope.READ, queues.welcome, {200: queues.Welcome}),
    Operation("GET", "/health/live", None, queues.live, {200: queues.AliveView}),
    Operation("GET", "/health/ready", None, queues.ready, {200: Health, 503: Health}),
    Operation("GET", "/api/v1/openapi.json", Scope.READ, show_openapi, {200: dict[str, Any]}),
    Operation("GET", "/docs", Scope.READ, show_docs, {200: str}, media="text/html"),
    Operation(
        *("POST", _JOBS, Scope.SUBMIT, jobs.add_job),
        *(dict.fromkeys((201, 200, 202), (JobView, ReceiptView)), JobRequest),
        headers=_KEY | _PREFER,
    ),
    Operation(
        *("POST", f"{_JOBS}/batch", Scope.SUBMIT, jobs.add_batch),
        *({201: (jobs.BatchView, jobs.ReceiptsView), 200: jobs.PreviewView}, BatchRequest),
        most=ONE_BATCH,
    ),
    Operation("POST", f"{_JOBS}/actions", Scope.OPERATE, jobs.start_action, {202: ActionView}, ActionRequest),
    Operation("GET", f"{_JOBS}/actions/{{id}}", Scope.READ, jobs.get_action, {200: ActionView}),
    Operation("GET", _JOBS, Scope.READ, jobs.find_jobs, {200: PageView}, query=FindQuery),
    Operation("GET", _JOB, Scope.READ, jobs.get_job, {200: JobView}),
    Operation("GET", f"{_JOB}/why", Scope.READ, jobs.why_job, {200: Why}),
    Operation("PATCH", _JOB, Scope.OPERATE, jobs.change_job, {200: JobView}, JobChange, headers=_IF_MATCH),
    Operation("DELETE", _JOB, Scope.OPERATE, jobs.delete_job, {204: None}),
    Operation("POST", f"{_JOB}/cancel", Scope.OPERATE, jobs.cancel_job, {200: JobView, 202: JobView}, Nothing),
    Operation("POST", f"{_JOB}/cancel/undo", Scope.OPERATE, jobs.undo_cancel, {200: JobView}, Nothing),
    Operation("POST", f"{_JOB}/retry", Scope.OPERATE, jobs.retry_job, {200: JobView}, Nothing),
    Operation("GET", f"{_JOB}/wait", Scope.READ, jobs.wait_for_job, {200: JobView}, query=WaitQuery),
    Operation("GET", f"{_JOB}/webhooks", Scope.READ, jobs.list_deliveries, {200: DeliveriesView}),
    Operation("POST", f"{_JOB}/webhooks/retry", Scope.OPERATE, jobs.retry_deliveries, {200: DeliveriesView}, Nothing),
    Operation("GET", _DEAD, Scope.READ, jobs.list_dead_letters, {200: PageView}, query=DeadLettersQuery),
    Operation("GET", f"{_DEAD}/stats", Scope.READ, jobs.count_dead_letters, {200: DeadLetterStatsView}),
    Operation("POST", f"{_DEAD}/retry", Scope.OPERATE, jobs.retry_dead_letters, {200: BulkResultView}, DeadLettersRequest),
    Operation("POST", f"{_DEAD}/delete", Scope.OPERATE, jobs.delete_dead_letters, {200: BulkResultView}, DeadLettersRequest),
    Operation("GET", _QUEUES, Scope.READ, queues.list_queues, {200: QueuesView}, query=QueuesQuery),
    Operation("GET", f"{_QUEUES}/{{name}}", Scope.READ, queues.get_queue, {200: QueueView}),
    Operation("PATCH", f"{_QUEUES}/{{name}}", Scope.ADMIN, queues.change_queue, {200: QueueView}, QueueRequest),
    Operation("POST", f"{_QUEUES}/{{name}}/pause", Scope.OPERATE, queues.pause_queue, {200: QueueView}, PauseRequest),
    Operation("POST", f"{_QUEUES}/{{name}}/resume", Scope.OPERATE, queues.resume_queue, {200: QueueView}, Nothing),
    Operation("GET", _SCHEDULES, Scope.READ, schedules.list_schedules, {200: SchedulesView}, query=QueuesQuery),
    Operation("POST", _SCHEDULES, Scope.ADMIN, schedules.add_schedule, {201: ScheduleView}, NewSchedule),
    Operation(
        *("POST", f"{_SCHEDULES}/preview", Scope.READ, schedules.preview_schedule),
        *({200: SchedulePreviewView}, PreviewRequest),
    ),
    Operation("GET", _SCHEDULE, Scope.READ, schedules.get_schedule, {200: ScheduleView}),
    Operation("PATCH", _SCHEDULE, Scope.ADMIN, schedules.change_schedule, {200: ScheduleView}, ScheduleChange),
    Operation("DELETE", _SCHEDULE, Scope.ADMIN, schedules.remove_schedule, {204: None}),
    Operation("POST", f"{_SCHEDULE}/pause", Scope.OPERATE, schedules.pause_schedule, {200: ScheduleView}, PauseRequest),
    Operation("POST", f"{_SCHEDULE}/resume", Scope.OPERATE, schedules.resume_schedule, {200: ScheduleView}, Nothing),
    Operation("POST", f"{_SCHEDULE}/trigger", Scope.OPERATE, schedules.trigger_schedule, {201: JobView}, Nothing),
    Operation("GET", f"{_SCHEDULE}/next-runs", Scope.READ, schedules.list_next_runs, {200: RunsView}, query=RunsQuery),
    Operation(
        "GET", f"{_SCHEDULE}/jobs", Scope.READ, schedules.list_schedule_jobs, {200: PageView}, query=ScheduleJobsQuery
    ),
    Operation("GET", "/api/v1/workers", Scope.READ, queues.list_workers, {200: WorkersView}),
    Operation("POST", _WORKERS, Scope.WORK, workers.register_worker, {201: RegisteredView}, WorkerRequest),
    Operation("POST", f"{_WORKER}/claim", Scope.WORK, workers.claim_jobs, {200: ClaimedView}, ClaimBody),
    Operation(
        "POST", f"{_WORKER}/renew", Scope.WORK, workers.renew_leases, {200: RenewedView}, RenewRequest, most=ONE_BATCH
    ),
    Operation(
        "POST", f"{_WORKER}/settle", Scope.WORK, workers.settle_jobs, {200: SettledView}, SettleRequest, most=ONE_BATCH
    ),
    Operation("DELETE", _WORKER, Scope.WORK, workers.remove_worker, {204: None}),
    Operation("GET", "/api/v1/stats", Scope.READ, queues.show_stats, {200: StatsView}, query=StatsQuery),
    Operation(
        *("GET", "/api/v1/events", Scope.READ, events.hear_events, {200: str}),
        query=EventsQuery,
        media=events.EVENT_STREAM,
        headers=_LAST_EVENT,
    ),
    Operation("GET", "/metrics", Scope.READ, metrics.show_metrics, {200: str}, media=metrics.TEXT),
    Operation("GET", f"{_METRICS}/overview", Scope.READ, metrics.show_overview, {200: MetricsOverview}, query=MetricsQuery),
    Operation(
        "GET", f"{_METRICS}/queues", Scope.READ, metrics.show_queue_metrics, {200: QueuesMetrics}, query=NamedMetricsQuery
    ),
    Operation(
        "GET", f"{_METRICS}/types", Scope.READ, metrics.show_type_metrics, {200: TypesMetrics}, query=NamedMetricsQuery
    ),
    Operation("GET", f"{_METRICS}/workers", Scope.READ, metrics.show_worker_metrics, {200: WorkersMetrics}),
    Operation("POST", "/api/v1/recover", Scope.OPERATE, queues.recover, {200: RecoveryView}, Nothing),
)


@functools.cache
def _document() -> dict[str, Any]:
    return describe(ROUTES)


@functools.cache
def _page() -> bytes:
    return reference_page.draw(_document())
