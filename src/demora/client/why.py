"""Why a job is in its present state: one sentence and the data behind it. Pure: it reads an `Outlook` and nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..core.job import Job, Lane
from ..core.pace import forecast
from ..core.spans import from_ms, plural, say, timestamp, to_ms
from ..core.states import Status
from ..core.verdict import BEFORE_START
from ..core.workers import TakenSlots, WorkerRecord, all_taken, say_types, serves
from ..handlers.builtin import DEMO_OFF, DEMO_TYPES
from ..store.paces import RECENT, Outlook

_MOST_TYPES = 20  # types that the data of an answer lists


class Why(msgspec.Struct, frozen=True):
    """An explanation: a `reason` for programs, a `sentence` for people, and the `data` behind it."""

    reason: str
    sentence: str
    data: dict[str, Any]


def explain(outlook: Outlook) -> Why:
    """Say why the job has not ended, or how it ended."""
    job = outlook.job
    if job.status.ended:
        return _ended(job, outlook.now)
    if job.status is Status.PROCESSING:
        return _running(job, outlook.now)
    if job.expires_at is not None and job.expires_at <= outlook.now and job.attempt == 0:
        return _expired(job, job.expires_at, outlook.now)
    if job.due_at > outlook.now:
        return _handed_back(job, outlook) if _is_handed_back(job, outlook.now) else _not_due(job, outlook)
    if outlook.pause is not None:
        return _paused(outlook)
    if outlook.held:
        return _held(outlook)
    return _unserved(outlook) or _ready(outlook)


def _ended(job: Job, now: datetime) -> Why:
    at = job.completed_at or now
    error = f": {job.error}" if job.error and job.error != BEFORE_START else ""
    ended = {Status.FAILED: "It failed", Status.CANCELLED: "It was cancelled"}.get(job.status, "It completed")
    sentence = f"{ended} at {_clock(at, now)}, in attempt {job.attempt} of {job.max_retries + 1}{error}."
    if job.attempt == 0:
        sentence = f"{ended} at {_clock(at, now)} without having run{error}."
    return Why("ended", sentence, {"status": job.status.name, "endedAt": timestamp(at), "error": job.error})


def _running(job: Job, now: datetime) -> Why:
    since = "" if job.started_at is None else f" since {_clock(job.started_at, now)}"
    until = "" if job.lease_until is None else f", lease until {_clock(job.lease_until, now)}"
    cancel = "; a cancel was requested" if job.cancel_requested_at is not None else ""
    attempt = f"attempt {job.attempt} of {job.max_retries + 1}"
    data = {
        "workerId": job.worker_id,
        "startedAt": _maybe(job.started_at),
        "attempt": job.attempt,
        "attempts": job.max_retries + 1,
        "leaseUntil": _maybe(job.lease_until),
        "cancelRequestedAt": _maybe(job.cancel_requested_at),
    }
    worker = job.worker_id or "a worker"
    if job.lease_until is not None and job.lease_until <= now:
        lapsed = f"whose lease lapsed at {_clock(job.lease_until, now)}"
        return Why("lapsed", f"It ran on {worker}{since}, {lapsed}; the next worker that claims jobs takes over.", data)
    return Why("running", f"It runs on {worker}{since}, {attempt}{until}{cancel}.", data)


def _expired(job: Job, at: datetime, now: datetime) -> Why:
    sentence = f"It expired at {_clock(at, now)} without having run; the next claim or housekeeping cancels it."
    return Why("expired", sentence, {"expiresAt": timestamp(at)})


def _is_handed_back(job: Job, now: datetime) -> bool:
    """Whether the job was due before, and a worker without a handler for its type has postponed it."""
    return job.status is Status.QUEUED and job.lane in (Lane.REALTIME, Lane.SCHEDULED) and job.scheduled_at <= now


def _handed_back(job: Job, outlook: Outlook) -> Why:
    unknown_to_all = f"no live worker that serves its queue {job.queue} knows its type {job.type}"
    unknown_to_one = f"a worker that does not know its type {job.type} has handed it back"
    known = _know(_serving(outlook), job.type)
    because, again = unknown_to_one if known else unknown_to_all, _clock(job.due_at, outlook.now)
    sentence = f"It waits, since {because}; it is offered again at {again}."
    return Why("handed_back" if known else "no_handler", sentence, {**_workers(outlook), "dueAt": timestamp(job.due_at)})


def _not_due(job: Job, outlook: Outlook) -> Why:
    left = _left(job.due_at - outlook.now)
    after = "; then the pace of its queue releases it" if _governed(outlook) else ""
    data = {"dueAt": timestamp(job.due_at), "attempt": job.attempt, "attempts": job.max_retries + 1, "error": job.error}
    due = _clock(job.due_at, outlook.now)
    if job.status is Status.RETRYING:
        error = f": {job.error}" if job.error else ""
        next_run = f"retry {job.attempt} of {job.max_retries}"
        return Why("retry_due", f"Attempt {job.attempt} failed{error}; {next_run} is due at {due}, in {left}{after}.", data)
    return Why("not_due", f"It is not due until {due}, in {left}{after}.", data)


def _paused(outlook: Outlook) -> Why:
    pause, queue = outlook.pause, outlook.job.queue
    assert pause is not None
    by, because = (f" by {pause.by}" if pause.by else ""), (f" ({pause.reason})" if pause.reason else "")
    at = _clock(pause.paused_at, outlook.now)
    sentence = f"Its queue {queue} was paused{by} at {at}{because}; workers claim none of its jobs."
    data = {"queue": queue, "pausedBy": pause.by, "pausedAt": timestamp(pause.paused_at), "pauseReason": pause.reason}
    return Why("queue_paused", sentence, data)


def _held(outlook: Outlook) -> Why:
    pacing, queue, place = outlook.pacing, outlook.job.queue, outlook.ahead + 1
    assert pacing is not None
    rate = pacing.pace.rate(quiet=pacing.quiet)
    release = from_ms(forecast(rate, pacing.state, to_ms(outlook.now), place))
    about = f"released {'after' if outlook.more_ahead else 'about'} {_clock(release, outlook.now)}"
    data = {
        "queue": queue,
        "place": place,
        "held": pacing.held,
        "releaseAt": timestamp(release),
        "mode": pacing.pace.mode(quiet=pacing.quiet),
        "paceSetBy": pacing.set_by,
        "paceSetAt": timestamp(pacing.set_at),
        **_more_ahead(outlook),
    }
    where = f"behind {outlook.ahead} or more jobs" if outlook.more_ahead else f"{_nth(place)} in line"
    return Why("held_by_pace", f"It is held by the pace of its queue {queue}, {where}, {about}.", data)


def _unserved(outlook: Outlook) -> Why | None:
    job, serving = outlook.job, _serving(outlook)
    data = _workers(outlook)
    if not serving:
        return Why("no_worker", f"It is ready, but no live worker serves its queue {job.queue}.", data)
    if not _know(serving, job.type):
        who = f"no live worker that serves its queue {job.queue}" if _know(_alive(outlook), job.type) else "no live worker"
        remedy = DEMO_OFF if job.type in DEMO_TYPES else "start one whose application has a handler for it (--app)"
        sentence = f"It is ready, but {who} knows {job.type}; {remedy}."
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
        **_more_ahead(outlook),
    }
    jobs = f"{ahead:,} or more jobs" if outlook.more_ahead else plural(ahead, "job")
    if ahead == 0:
        place = "It is ready and next in line"
    elif wait is None:
        place = f"It is ready behind {jobs}; none of this queue was completed in the last {say(RECENT)}"
    else:
        place = f"It is ready behind {jobs}, at the present rate about {_rough(wait)}"
    knowing = [worker for worker in _serving(outlook) if job.type in worker.types]
    taken = all_taken(knowing, outlook.running)
    return Why("ready", f"{place}.", data) if taken is None else _crowded_out(place, data, taken, outlook)


def _crowded_out(place: str, data: dict[str, Any], taken: TakenSlots, outlook: Outlook) -> Why:
    longest = taken.longest[0]
    since = _clock(longest.since, outlook.now)
    workers = f"the workers that serve its queue {outlook.job.queue}"
    slots = f"all {taken.slots} slots" if taken.slots > 1 else "the only slot"
    are = "are" if taken.slots > 1 else "is"
    sentence = (
        f"{place}, but {slots} of {workers} {are} taken ({say_types(taken)}), "
        f"the longest by {longest.longest_id} ({longest.type}) since {since}."
    )
    more = {
        "slots": taken.slots,
        "takenBy": dict(taken.by_type[:_MOST_TYPES]),
        "longest": [{"id": one.longest_id, "type": one.type, "since": timestamp(one.since)} for one in taken.longest],
    }
    return Why("slots_taken", sentence, data | more)


def _more_ahead(outlook: Outlook) -> dict[str, Any]:
    """The mark of an explanation for a list, where counting the jobs ahead has stopped."""
    return {"moreAhead": True} if outlook.more_ahead else {}


def _governed(outlook: Outlook) -> bool:
    """Whether the pace of the queue will hold the job once it is due."""
    return outlook.pacing is not None and outlook.job.lane in outlook.pacing.pace.governs.lanes


def _alive(outlook: Outlook) -> list[WorkerRecord]:
    return [worker for worker in outlook.workers if worker.live]


def _serving(outlook: Outlook) -> list[WorkerRecord]:
    return [worker for worker in _alive(outlook) if serves(worker, outlook.job.queue)]


def _workers(outlook: Outlook) -> dict[str, Any]:
    counts = {"liveWorkers": len(_alive(outlook)), "serveQueue": len(_serving(outlook))}
    return {"queue": outlook.job.queue, "type": outlook.job.type, **counts}


def _know(workers: Sequence[WorkerRecord], type: str) -> bool:
    return any(type in worker.types for worker in workers)


def _nth(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_GRAINS = ((timedelta(days=2), timedelta(hours=1)), (timedelta(hours=2), timedelta(minutes=1)))


def _left(span: timedelta) -> str:
    """Say how long is left: to the second, if that is long to the minute or to the hour."""
    whole = timedelta(seconds=-(-span // timedelta(seconds=1)))
    grain = next((grain for least, grain in _GRAINS if whole >= least), timedelta(seconds=1))
    return say(whole // grain * grain)


def _rough(wait: timedelta) -> str:
    return say(timedelta(seconds=round(wait / timedelta(seconds=1)))) if wait > timedelta(seconds=1) else "1s"


def _clock(at: datetime, now: datetime) -> str:
    """Return the time of day in UTC, with the date unless it is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _maybe(at: datetime | None) -> str | None:
    return None if at is None else timestamp(at)
