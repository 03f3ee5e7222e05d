"""Jobs as Django shows them: statuses, priorities, and the results of tasks."""

import dataclasses
import re
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from ...core.job import Attempt, Job, Lane, Priority
from ...core.states import Status
from .tasks_api import AnyResult, AnyTask, InvalidTask, TaskError, TaskResult, TaskResultStatus

_STATUSES = {
    Status.PROCESSING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}
# What a worker records without a traceback.
_WITHOUT_TRACEBACK = {"TimedOut": "builtins.TimeoutError", "CancelledError": "asyncio.exceptions.CancelledError"}
_WITHOUT_TRACEBACK |= {name: f"demora.handlers.control.{name}" for name in ("Retry", "Fail", "Cancel")}
_OTHER = "demora.errors.DemoraError"


def priority_of(number: int) -> Priority:
    """Return the priority of a job for the number that Django's tasks have."""
    if number < 0:
        return Priority.LOW
    if number == 0:
        return Priority.NORMAL
    return Priority.HIGH if number < 50 else Priority.CRITICAL


def new_result(task: AnyTask, id: str, args: Any, kwargs: Any, enqueued_at: datetime) -> AnyResult:
    """Return the result of a task that was just enqueued."""
    return TaskResult(
        task=task,
        id=id,
        status=TaskResultStatus.READY,
        enqueued_at=in_django(enqueued_at),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def result_of(job: Job, task: AnyTask) -> AnyResult:
    """Return a job as the result of its task."""
    failed = [attempt for attempt in job.attempts if attempt.error is not None]
    started = [attempt.started_at for attempt in job.attempts] + [job.started_at] * (job.status is Status.PROCESSING)
    result: AnyResult = TaskResult(
        task=_as_enqueued(job, task),
        id=job.id,
        status=_STATUSES.get(job.status, TaskResultStatus.READY),
        enqueued_at=in_django(job.created_at),
        started_at=in_django(started[0]) if started else None,
        finished_at=in_django(job.completed_at),
        last_attempted_at=in_django(started[-1]) if started else None,
        args=job.payload["args"],
        kwargs=job.payload["kwargs"],
        backend=task.backend,
        errors=[error_of(attempt) for attempt in failed],
        worker_ids=_worker_ids(job),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def error_of(attempt: Attempt) -> TaskError:
    """Return the error of an attempt. The path of its class is read from the line of the traceback that names the error."""
    error, trace = attempt.error or "", attempt.traceback or ""
    said = error.partition("\n")[0]
    named = re.findall(rf"^((?:[\w<>]+\.)*){re.escape(said)}", trace, re.MULTILINE)
    name = said.partition(":")[0]
    path = f"{named[-1] or 'builtins.'}{name}" if named else _WITHOUT_TRACEBACK.get(name, _OTHER)
    return TaskError(exception_class_path=path, traceback=trace or error)


def in_django(at: Any) -> Any:
    """Return a time as Django has it: naive and local if USE_TZ is off."""
    return at if at is None or settings.USE_TZ else timezone.make_naive(at)


def from_django(at: datetime) -> datetime:
    """Return an aware time for one that may be naive and local."""
    return at if timezone.is_aware(at) else timezone.make_aware(at)


def _as_enqueued(job: Job, task: AnyTask) -> AnyTask:
    """Return the task with the priority, the queue and the time that this job was enqueued with."""
    run_after = in_django(job.scheduled_at) if job.lane is not Lane.REALTIME and job.scheduled_at > job.created_at else None
    priority = job.payload.get("priority", 0)
    try:
        return dataclasses.replace(task, priority=priority, queue_name=job.queue, run_after=run_after)
    except InvalidTask:  # the settings no longer allow it
        return task


def _worker_ids(job: Job) -> list[str]:
    """Return one worker for each attempt, the running one included."""
    ids = [attempt.worker_id or "" for attempt in job.attempts]
    return [*ids, job.worker_id or ""] if job.status is Status.PROCESSING else ids
