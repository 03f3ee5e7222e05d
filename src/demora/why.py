"""Why a job is where it is: one honest sentence, and the data behind it. Pure: it judges what an outlook says."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from .core.job import Job
from .core.pace import forecast
from .core.spans import from_ms, say, timestamp, to_ms
from .core.states import Status
from .pacing import RECENT, Outlook
from .store import Worker

LIVE_WITHIN = timedelta(seconds=30)  # of its last heartbeat a worker counts as alive


class Why(msgspec.Struct, frozen=True):
    """The answer: a `reason` that programs can compare, a `sentence` for people, and the `data` that it was made from."""

    reason: str
    sentence: str
    data: dict[str, Any]


def explain(outlook: Outlook) -> Why:
    """Why the job has not ended, or how it did."""
    job = outlook.job
    if job.status.ended:
        return _ended(job, outlook.now)
    if job.status is Status.PROCESSING:
        return _running(job, outlook.now)
    if job.due_at > outlook.now:
        return _not_due(job, outlook)
    if outlook.pause is not None:
        return _paused(outlook)
    if outlook.held:
        return _held(outlook)
    return _unserved(outlook) or _ready(outlook)


def _ended(job: Job, now: datetime) -> Why:
    at = job.completed_at or now
    error = f": {job.error}" if job.error else ""
    sentence = f"It ended {job.status.name} at {_clock(at, now)}, in attempt {job.attempt} of {job.max_retries + 1}{error}."
    if job.attempt == 0:
        sentence = f"It ended {job.status.name} at {_clock(at, now)} without having run{error}."
    return Why("ended", sentence, {"status": job.status.name, "endedAt": timestamp(at), "error": job.error})


def _running(job: Job, now: datetime) -> Why:
    since = "" if job.started_at is None else f" since {_clock(job.started_at, now)}"
    until = "" if job.lease_until is None else f", lease until {_clock(job.lease_until, now)}"
    told = "; it was told to end" if job.cancel_requested_at is not None else ""
    attempt = f"attempt {job.attempt} of {job.max_retries + 1}"
    data = {
        "workerId": job.worker_id,
        "startedAt": _maybe(job.started_at),
        "attempt": job.attempt,
        "attempts": job.max_retries + 1,
        "leaseUntil": _maybe(job.lease_until),
        "cancelRequestedAt": _maybe(job.cancel_requested_at),
    }
    return Why("running", f"It runs on {job.worker_id or 'a worker'}{since}, {attempt}{until}{told}.", data)


def _not_due(job: Job, outlook: Outlook) -> Why:
    left = say(timedelta(seconds=-(-(job.due_at - outlook.now) // timedelta(seconds=1))))
    after = "; then the pace of its queue lets it go" if _governed(outlook) else ""
    data = {"dueAt": timestamp(job.due_at), "attempt": job.attempt, "attempts": job.max_retries + 1, "error": job.error}
    due = _clock(job.due_at, outlook.now)
    if job.status is Status.RETRYING:
        error = f" after {job.error}" if job.error else ""
        next_run = f"retry {job.attempt} of {job.max_retries}"
        return Why("retry_due", f"It failed{error}; {next_run} is due at {due}, in {left}{after}.", data)
    return Why("not_due", f"It is not due until {due}, in {left}{after}.", data)


def _paused(outlook: Outlook) -> Why:
    pause, queue = outlook.pause, outlook.job.queue
    assert pause is not None
    by, because = (f" by {pause.by}" if pause.by else ""), (f" ({pause.reason})" if pause.reason else "")
    at = _clock(pause.paused_at, outlook.now)
    sentence = f"Its queue {queue} was paused{by} at {at}{because}; nothing of it is handed out."
    data = {"queue": queue, "pausedBy": pause.by, "pausedAt": timestamp(pause.paused_at), "pauseReason": pause.reason}
    return Why("queue_paused", sentence, data)


def _held(outlook: Outlook) -> Why:
    pacing, queue, place = outlook.pacing, outlook.job.queue, outlook.ahead + 1
    assert pacing is not None
    rate = pacing.pace.rate(quiet=pacing.quiet)
    release = from_ms(forecast(rate, pacing.state, to_ms(outlook.now), place))
    about = f"released about {_clock(release, outlook.now)}"
    data = {
        "queue": queue,
        "place": place,
        "held": pacing.held,
        "releaseAt": timestamp(release),
        "mode": pacing.pace.mode(quiet=pacing.quiet),
        "paceSetBy": pacing.set_by,
        "paceSetAt": timestamp(pacing.set_at),
    }
    return Why("held_by_pace", f"It is held by the pace of its queue {queue}, {_nth(place)} in line, {about}.", data)


def _unserved(outlook: Outlook) -> Why | None:
    job, alive = outlook.job, [worker for worker in outlook.workers if worker.heartbeat_ago < LIVE_WITHIN]
    serving = [worker for worker in alive if not worker.queues or job.queue in worker.queues]
    data = {"queue": job.queue, "type": job.type, "liveWorkers": len(alive), "serveQueue": len(serving)}
    if not serving:
        return Why("no_worker", f"It is ready, but no live worker serves its queue {job.queue}.", data)
    if not _know(serving, job.type):
        sentence = f"It is ready, but no live worker that serves its queue {job.queue} knows its type {job.type}."
        return Why("no_handler", sentence, data)
    return None


def _ready(outlook: Outlook) -> Why:
    job, ahead = outlook.job, outlook.ahead
    rate = outlook.recent / RECENT.total_seconds()
    wait = None if rate == 0 else timedelta(seconds=ahead / rate)
    data = {
        "queue": job.queue,
        "ahead": ahead,
        "perSecond": round(rate, 3),
        "aboutMs": None if wait is None else wait // timedelta(milliseconds=1),
    }
    if ahead == 0:
        return Why("ready", "It is ready and next in line.", data)
    jobs = f"{ahead} job{'s' if ahead > 1 else ''}"
    if wait is None:
        sentence = f"It is ready behind {jobs}; none of this queue was completed in the last {say(RECENT)}."
    else:
        sentence = f"It is ready behind {jobs}, at the present rate about {_rough(wait)}."
    return Why("ready", sentence, data)


def _governed(outlook: Outlook) -> bool:
    return outlook.pacing is not None and outlook.job.lane in outlook.pacing.pace.governs.lanes


def _know(workers: Sequence[Worker], type: str) -> bool:
    return any(type in worker.types for worker in workers)


def _nth(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _rough(wait: timedelta) -> str:
    return say(timedelta(seconds=round(wait / timedelta(seconds=1)))) if wait > timedelta(seconds=1) else "1s"


def _clock(at: datetime, now: datetime) -> str:
    """The time of day in UTC, with the day unless it is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def _maybe(at: datetime | None) -> str | None:
    return None if at is None else timestamp(at)
