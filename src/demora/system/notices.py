"""The log of demora. Each event has its name, wording and fields here. A line contains ids of jobs, never payloads.

Only the lines about failed attempts have a traceback; see `error_texts` for what it contains.
"""

import logging
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from logging import DEBUG, ERROR, INFO, WARNING
from pathlib import PurePath
from types import FrameType
from typing import Any

from ..core.states import Status
from . import error_texts
from .log_limit import MOST_SUBJECTS, Burst, Limit

log = logging.getLogger("demora")
AGAIN = 30.0  # seconds until the same trouble is logged again
_unknown = Limit(lasting=True)  # types without a handler
_blocking = Limit()  # types whose handlers block the loop
_troubled: dict[str, tuple[str, float]] = {}  # by failing activity: its last error, and when that was logged
_said: dict[str, tuple[str, float]] = {}  # by event: the last fact, and when it was logged
_ends_at = DEBUG  # the level of lines about jobs that completed


def show_ends(shown: bool) -> None:
    """Log completed jobs at INFO from now on if `shown`, which suits a terminal, and otherwise at DEBUG."""
    global _ends_at
    _ends_at = INFO if shown else DEBUG


def unknown_variable(variable: str, nearest: str | None) -> None:
    words = "unknown variable {variable}: demora has no such setting" + ("; did you mean {nearest}?" if nearest else "")
    _say(WARNING, "settings.stranger", words, variable=variable, nearest=nearest)


def database_used(database: str, line: str | None) -> None:
    words = "jobs in {database}" + (", lined up in {line}" if line else "")
    _say(INFO, "database.used", words, database=database, line=line)


def schema_step(number: int) -> None:
    _say(INFO, "schema.step", "schema {number}: applying the step", number=number)


def schema_block(number: int, subject: str, block: int, blocks: int) -> None:
    words = "schema {number}: {subject}, block {block} of {blocks}; other processes continue"
    _say(INFO, "schema.block", words, number=number, subject=subject, block=block, blocks=blocks)


def schema_progress(subject: str, phase: str, share: float | None) -> None:
    words = "{subject}: {phase}" + ("" if share is None else f", {share:.0%}")
    _say(INFO, "schema.progress", words, subject=subject, phase=phase, share=share)


def other_database(used: str, named: str, source: str) -> None:
    words = (
        "the code of the application says {database}, so its jobs are there, and not in {named} of {source}; commands "
        "without --app look at the second. Write Demora() in the code to use the settings everywhere"
    )
    _say(WARNING, "database.other", words, database=used, named=named, source=source)


def worker_started(worker_id: str, slots: int, queues: str, types: int) -> None:
    words = "worker {worker} started: {slots} slots, queues {queues}, {types} types"
    _say(INFO, "worker.started", words, worker=worker_id, slots=slots, queues=queues, types=types)


def builtins_off(types: Sequence[str], reason: str) -> None:
    words = "built-in handlers are switched off: {types} ({reason})"
    _say(INFO, "worker.builtins_off", words, types=", ".join(types), reason=reason)


def builtins_only() -> None:
    words = "built-in handlers only: no application is named (--app MODULE:APP, or app in demora.toml)"
    _say(INFO, "worker.builtins_only", words)


def queue_new(queue: str) -> None:
    _say(INFO, "worker.queue_new", "queue {queue} is new: it has never had a job", queue=queue)


def metrics_shown(address: str) -> None:
    _say(INFO, "worker.metrics", "metrics at {address}", address=address)


def stop_requested(signal: str) -> None:
    words = "stopping after {signal}; " + ("a second Ctrl-C" if signal == "SIGINT" else "a second signal") + " ends at once"
    _say(INFO, "process.stopping", words, signal=signal)


def worker_stopping(worker_id: str, running: int, grace: float) -> None:
    words = "worker {worker} is stopping: {running} running, up to {grace_s:.1f} s for them to end"
    _say(INFO, "worker.stopping", words, worker=worker_id, running=running, grace_s=grace)


def worker_stopped(worker_id: str, handed_back: int) -> None:
    words = "worker {worker} stopped: {handed_back} jobs handed back"
    _say(INFO, "worker.stopped", words, worker=worker_id, handed_back=handed_back)


def worker_stuck(worker_id: str, stuck: int, slots: int) -> None:
    words = "worker {worker} drains and exits: {stuck} of {slots} slots are held by runs that did not end"
    _say(ERROR, "worker.stuck", words, worker=worker_id, stuck=stuck, slots=slots)


def worker_store_closed(worker_id: str) -> None:
    words = (
        "worker {worker} stops: its store was closed while it ran; other workers take over its jobs when the leases lapse"
    )
    _say(ERROR, "worker.store_closed", words, worker=worker_id)


def worker_refused(worker_id: str, problem: BaseException) -> None:
    words = "worker {worker} stops: {error}"
    _say(ERROR, "worker.refused", words, worker=worker_id, error=_one_line(str(problem)))


def worker_died(pid: int, code: int, pause: float) -> None:
    words = "worker process {pid} ended with {end}, another starts in {next_start_s:.1f} s"
    _say(ERROR, "worker.died", words, pid=pid, end=_end(code), next_start_s=pause)


def reloads(file: str) -> None:
    _say(INFO, "reload.changed", "{file} has changed: restarting", file=_one_line(file))


def reload_waits(code: int) -> None:
    words = "the process ended with {end}; it starts again when a file changes"
    _say(WARNING, "reload.waits", words, end=_end(code))


def supervisor_gone() -> None:
    _say(ERROR, "worker.supervisor_gone", "the supervisor of this worker is gone; the worker stops")


def line_away(problem: Exception) -> None:
    words = "the Redis line is unavailable ({error}): the database hands out the jobs until it is back"
    _say(WARNING, "line.away", words, error=_one_line(error_texts.of_error(problem)))


def line_back(epoch: int) -> None:
    _say(INFO, "line.back", "the Redis line is in use again, in epoch {epoch}", epoch=epoch)


def line_filled(epoch: int, jobs: int) -> None:
    words = "the Redis line was filled from the database in epoch {epoch}: {jobs} jobs"
    _say(INFO, "line.filled", words, epoch=epoch, jobs=jobs)


def webhook_secret_made() -> None:
    words = "a secret to sign webhooks was created, because there was none; demora webhooks secret reveal shows it"
    _say(INFO, "webhook.secret_made", words)


def run_started(id: str, type: str, queue: str, attempt: int) -> None:
    if log.isEnabledFor(DEBUG):  # each job comes here, so the facts are not collected for nothing
        words = "job {job_id} ({type}) starts attempt {attempt}"
        _say(DEBUG, "job.started", words, job_id=id, type=type, queue=queue, attempt=attempt)


def run_completed(id: str, type: str, queue: str, attempt: int, ran: timedelta, burst: Burst) -> None:
    """Log a completed job. At DEBUG each one has a line; at INFO `burst` limits their number."""
    if log.isEnabledFor(_ends_at) and (log.isEnabledFor(DEBUG) or burst.admits()):
        words = "job {job_id} ({type}) completed in {ran_s:.3f} s"
        facts: dict[str, Any] = {"job_id": id, "type": type, "queue": queue, "attempt": attempt}
        _say(_ends_at, "job.completed", words, **facts, ran_s=ran.total_seconds())


def runs_completed(jobs: int) -> None:
    _say(INFO, "job.completed_many", "{jobs} more jobs completed in the last second", jobs=jobs)


def run_put_back(id: str, type: str, queue: str, status: Status, reason: str) -> None:
    """Log a run that does not count as an attempt: the handler raised `Snooze`, or the worker stops."""
    words = "job {job_id} ({type}) is {status} again: {reason}"
    _say(DEBUG, "job.put_back", words, job_id=id, type=type, queue=queue, status=status.name, reason=reason)


def run_cancelled(id: str, type: str, queue: str, attempt: int, reason: str) -> None:
    facts: dict[str, Any] = {"job_id": id, "type": type, "queue": queue, "status": Status.CANCELLED.name}
    error, words = _one_line(error_texts.of_reason(reason)), "job {job_id} ({type}) attempt {attempt} was cancelled: {error}"
    _say(INFO, "job.cancelled", words, **facts, attempt=attempt, error=error)


def run_failed(
    id: str,
    type: str,
    queue: str,
    status: Status,
    attempt: int,
    error: str,
    problem: BaseException | None = None,
    *,
    expected: bool = False,
) -> None:
    """Log a failed attempt: a dead letter at ERROR, any other at WARNING, both with the traceback of `problem`. A retry that
    the handler `expected` has one line at INFO."""
    facts: dict[str, Any] = {"job_id": id, "type": type, "queue": queue, "status": status.name, "attempt": attempt}
    level = ERROR if status is Status.FAILED else INFO if expected else WARNING
    words = "job {job_id} ({type}) attempt {attempt} failed, now {status}: {error}"
    shown = _one_line(error_texts.of_text(error))
    _say(level, "job.failed", words, problem=None if level == INFO else problem, **facts, error=shown)


def job_lapsed(id: str, type: str, worker_id: str | None, status: Status) -> None:
    words = "job {job_id} ({type}): the lease of worker {worker} lapsed, now {status}"
    level = ERROR if status is Status.FAILED else WARNING
    _say(level, "job.lapsed", words, job_id=id, type=type, worker=worker_id, status=status.name)


def type_unknown(type: str) -> None:
    """Log that jobs of a type wait and no live worker knows it: once per type, for at most a hundred types."""
    if not _unknown.admits(type):
        return
    words = "jobs of type {type} wait, and no live worker has a handler for it"
    remedy = "start a worker with the application that has one, --app module:app; without one they fail after an hour"
    _say(WARNING, "type.unknown", f"{words}; {remedy}", type=type)
    if _unknown.full:
        words = "jobs of {types} unknown types wait: further types are not named"
        _say(WARNING, "type.unknown_many", words, types=MOST_SUBJECTS)


def unknown_failed(jobs: int) -> None:
    words = "{jobs} jobs failed for good (UnknownType): no live worker knew their type for an hour"
    _say(ERROR, "job.unknown_failed", words, jobs=jobs)


def job_unknown(id: str, type: str, error: str | None = None) -> None:
    """Log a job whose handler was switched off after the claim. With an error it has failed for good."""
    words = "job {job_id} ({type}): this worker no longer has a handler for its type"
    _say(WARNING if error is None else ERROR, "job.unknown_type", words, job_id=id, type=type)


def loop_blocked(job: tuple[str, str] | None, seconds: float, frame: FrameType | None) -> None:
    """Warn that a handler blocks the event loop, with the innermost places of its stack: once per type and minute. `job` is
    the id and type of the job if it is known."""
    if not _blocking.admits("" if job is None else job[1]):
        return
    stack = [] if frame is None else traceback.StackSummary.extract(traceback.walk_stack(frame), limit=5, lookup_lines=False)
    places = " > ".join(f"{PurePath(one.filename).name}:{one.lineno} in {one.name}" for one in reversed(stack))
    facts: dict[str, Any] = {"blocked_s": seconds, "places": _one_line(places)}
    facts |= {} if job is None else {"job_id": job[0], "type": job[1]}
    by = "the event loop is blocked" if job is None else "job {job_id} ({type}) blocks the event loop"
    advice = "no other async handler runs meanwhile; await instead, or make it a plain function, which runs in a thread"
    _say(WARNING, "worker.loop_blocked", f"{by}, for {{blocked_s:.1f}} s so far, at {{places}}: {advice}", **facts)


def loop_free(seconds: float) -> None:
    """Log how long the loop was blocked, once a minute."""
    if _blocking.admits("free"):
        _say(WARNING, "worker.loop_free", "the event loop was blocked for {blocked_s:.1f} s", blocked_s=seconds)


def lease_lost(id: str, type: str) -> None:
    words = "job {job_id} ({type}): its lease was lost; the outcome of this run is not recorded"
    _say(WARNING, "job.lease_lost", words, job_id=id, type=type)


def settled_too_late(id: str) -> None:
    _say(WARNING, "job.settled_too_late", "job {job_id}: its lease was lost before its outcome was recorded", job_id=id)


def run_timed_out(id: str, type: str, seconds: float) -> None:
    words = "job {job_id} ({type}) ran longer than its timeout of {timeout_s:.3f} s"
    _say(WARNING, "job.timed_out", words, job_id=id, type=type, timeout_s=seconds)


def process_forked(job: tuple[str, str] | None) -> None:
    """Warn that this process was forked; `job` is the id and type of the job that did it, if any."""
    facts: dict[str, Any] = {} if job is None else {"job_id": job[0], "type": job[1]}
    by = "" if job is None else " by job {job_id} ({type})"
    advice = "its child must not use the worker's connections or loop; use process=True, or start processes with spawn"
    _say(WARNING, "worker.forked", f"this process was forked{by}: {advice}", **facts)


def runs_left(worker_id: str, types: Sequence[str]) -> None:
    """Warn once that a worker stops although handlers, most of them in threads, do not end."""
    words = "worker {worker} stops while {runs} handlers still run ({types}): their jobs are handed back"
    _say(WARNING, "worker.runs_left", words, worker=worker_id, runs=len(types), types=", ".join(sorted(set(types))))


def run_ignores_end(id: str, type: str) -> None:
    words = "job {job_id} ({type}) still runs although it was ended; its slot stays taken"
    _say(ERROR, "job.ignores_end", words, job_id=id, type=type)


def store_trouble(what: str, problem: Exception, seconds: float) -> None:
    """Log that an activity failed: at once, and then every half minute while the error stays the same."""
    error, now = _one_line(error_texts.of_error(problem)), time.monotonic()
    before, said_at = _troubled.get(what, (None, now))
    if error == before and now - said_at < AGAIN:
        return
    _troubled[what] = error, now
    words = "{what} failed, next try in {next_try_s:.1f} s: {error}"
    _say(ERROR, "store.trouble", words, what=what, next_try_s=seconds, error=error)


def store_well(what: str) -> None:
    """Log that an activity works again. Logs nothing if it did not fail before, so call this after every success."""
    if _troubled.pop(what, None) is not None:
        _say(INFO, "store.well", "{what} works again", what=what)


def store_locked(holder: str | None, seconds: float) -> None:
    """Log that the database file is locked: every half minute while the holder stays the same."""
    if _is_news("store.locked", str(holder)):
        words = "the database file has been locked for {waited_s:.1f} s by {holder}: writes are refused until it is free"
        _say(ERROR, "store.locked", words, waited_s=seconds, holder=_one_line(holder or "another process"))


def store_damaged(problem: Exception) -> None:
    if _is_news("store.damaged", str(problem)):
        _say(ERROR, "store.damaged", "{error}", error=_one_line(str(problem)))


def scheduler_started(name: str) -> None:
    _say(INFO, "scheduler.started", "scheduler {scheduler} started", scheduler=name)


def housekeeping_done(expired: int, removed: int) -> None:
    words = "housekeeping: {expired} jobs expired, {removed} ended jobs deleted"
    _say(INFO, "scheduler.tidied", words, expired=expired, removed=removed)


def jobs_released(queue: str, jobs: int, *, held: int | None = None, after: timedelta | None = None) -> None:
    words = "the pace of {queue} released {jobs} " + ("" if held is None else "of {held} held ")
    words += "delayed job" if (jobs if held is None else held) == 1 else "delayed jobs"
    words += "" if after is None else ", {after_s:.1f} s after the previous release"
    since = None if after is None else after.total_seconds()
    _say(INFO, "pace.released", words, queue=queue, jobs=jobs, held=held, after_s=since)


def keeper_died(problem: BaseException) -> None:
    words = "renewing leases has failed for good, the worker stops: {error}"
    _say(ERROR, "worker.keeper_died", words, error=_one_line(error_texts.of_error(problem, quoted=True)))


def settlement_dropped(id: str, problem: Exception) -> None:
    words = "job {job_id}: its outcome could not be recorded, so its lease will lapse: {error}"
    _say(ERROR, "job.not_settled", words, job_id=id, error=_one_line(error_texts.of_error(problem, quoted=True)))


def report_refused(problem: BaseException) -> None:
    words = "the service refuses the progress or the log of a run, which are lost; its lease is renewed: {error}"
    _say(WARNING, "job.report_refused", words, error=_one_line(error_texts.of_error(problem)))


def hook_failed(which: str, problem: BaseException) -> None:
    error = _one_line(error_texts.of_error(problem, quoted=True))
    _say(ERROR, "worker.hook_failed", "{hook} hook failed: {error}", hook=which, error=error)


def service_started(url: str, database: str) -> None:
    _say(INFO, "service.started", "service at {address}, jobs in {database}", address=url, database=database)


def service_reachable(host: str, hosts: str) -> None:
    words = "others can reach {host}: they need an API key and one of the host names {hosts}; a proxy must add TLS"
    _say(WARNING, "service.reachable", words, host=host, hosts=hosts)


def connections_full(limit: str) -> None:
    words = "connections are refused with 503: {limit}; for the next {again_s:.0f} s this is not logged again"
    _say(WARNING, "service.connections_full", words, limit=_one_line(limit), again_s=AGAIN)


def connections_lowered(wanted: int, most: int, files: int) -> None:
    words = "at most {most} connections instead of {wanted}: this process may have {files} open files (ulimit -n)"
    _say(WARNING, "service.connections_lowered", words, wanted=wanted, most=most, files=files)


def use_not_noted(key_id: str, problem: Exception) -> None:
    words = "API key {key_id}: its use could not be recorded: {error}"
    _say(WARNING, "key.use_not_noted", words, key_id=key_id, error=type(problem).__name__)


def request_failed(method: str, path: str, problem: BaseException, request_id: str) -> None:
    """Log the class and the place of an error, not its text, which may repeat what a client sent."""
    frames = traceback.extract_tb(problem.__traceback__)[-5:]
    places = " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
    words = "{method} {path} failed: {error} at {places} (request {request_id})"
    asked = {"method": method, "path": _one_line(path), "request_id": _one_line(request_id)}
    _say(ERROR, "request.failed", words, problem=None, **asked, error=type(problem).__name__, places=places)


def acted(by: str, verb: str, subject: str) -> None:
    """Log who did something on the dashboard. The subject is an id, the name of a queue or schedule, or a number of jobs."""
    _say(INFO, "dashboard.acted", "{by}: {verb} {subject}", by=_one_line(by), verb=verb, subject=_one_line(subject))


def overloaded(held: int, most: int) -> None:
    """Log that requests are refused; the caller limits how often."""
    words = "requests are refused: those in progress hold {held} bytes, and DEMORA_IN_FLIGHT_BYTES is {most}"
    _say(WARNING, "service.overloaded", words, held=held, most=most)


def pace_in_force(queue: str, pace: str, by: str) -> None:
    words = ("all queues without a pace of their own have" if queue == "*" else "{queue} has") + " the pace {pace} (by {by})"
    _say(INFO, "pace.in_force", words, queue=queue, pace=pace, by=by)


def pace_set(queue: str, pace: str | None, by: str, *, follows: bool = False) -> None:
    whose = "of all queues" if queue == "*" else "of {queue}"
    pace = "that of all queues" if follows else pace
    words = f"the pace {whose} was " + ("taken off" if pace is None else "set to {pace}") + " by {by}"
    _say(INFO, "pace.set", words, queue=queue, pace=pace, by=by)


def jobs_held(queue: str, *, held: int, delayed: int, waiting: int, next_in: float | None, last: float | None) -> None:
    words = "the pace of {queue} holds {held} of {delayed} delayed jobs, {waiting_for_gap} wait for the gap"
    words += "" if next_in is None else "; next release in {next_release_in_s:.0f} s"
    words += "; none released yet" if last is None else ", last one {last_release_s:.0f} s ago"
    facts: dict[str, Any] = {"waiting_for_gap": waiting, "next_release_in_s": next_in, "last_release_s": last}
    _say(INFO, "pace.holds", words, queue=queue, held=held, delayed=delayed, **facts)


def next_release(queue: str, wait: float) -> None:
    words = "the pace of {queue} can release the next job in {next_release_in_s:.1f} s"
    _say(DEBUG, "pace.next", words, queue=queue, next_release_in_s=wait)


def schedule_fired(name: str, added: int, others: int) -> None:
    """Log the decision about the due fire times of a schedule: how many got a job, and how many did not."""
    if others:
        words = "schedule {name}: {added} of {fire_times} fire times got a job"
        _say(INFO, "schedule.fired", words, name=name, added=added, fire_times=added + others)
    elif added:
        _say(DEBUG, "schedule.fired", "schedule {name}: {added} jobs added", name=name, added=added, fire_times=added)


def schedule_broken(name: str, problem: Exception) -> None:
    """Log that a stored schedule cannot be decided on, at most once in half a minute."""
    if _is_news(f"schedule {name}", type(problem).__name__):
        words = "schedule {name} cannot fire: {error}; correct it with demora schedule edit {name}"
        _say(ERROR, "schedule.broken", words, name=name, error=_one_line(error_texts.of_error(problem)))


def schedule_over(name: str) -> None:
    words = "the last time of schedule {name} has passed; take it out of the code when its records are no longer needed"
    _say(WARNING, "schedule.over", words, name=name)


def schedules_foreseen(moved: int, zones: str) -> None:
    words = "the next runs of {moved} schedules follow the time zones of {zones} now"
    _say(INFO, "schedule.zones", words, moved=moved, zones=zones)


def schedule_defined(name: str, result: str, kept: tuple[str, ...]) -> None:
    """Log what became of a schedule in code when the process started."""
    match result:
        case "added" | "updated":
            words = "schedule {name} is {result}, as the code says"
        case "taken":
            words = "schedule {name} is not defined: its name belongs to a person or another application; choose another"
        case "older":
            words = "schedule {name} stays as a newer version has defined it, while processes of that version run"
        case "retired":
            words = "schedule {name} is removed: the code of this application no longer has it"
        case "pending":
            words = "schedule {name} is not in this code; it stays while other live processes have it"
        case "over":
            words = "schedule {name} is not added: its last time has passed"
        case _:
            words = "schedule {name} is unchanged"
    if kept and result in ("updated", "same"):
        words += "; changed by a person and kept: {kept}"
    level = WARNING if result == "taken" else DEBUG if result == "same" and not kept else INFO
    _say(level, "schedule.defined", words, name=name, result=result, kept=", ".join(kept))


def _is_news(what: str, fact: str) -> bool:
    """Return whether this fact was not logged within the last half minute, and note that it is now."""
    before, said_at = _said.get(what, ("", -AGAIN))
    now = time.monotonic()
    if fact == before and now - said_at < AGAIN:
        return False
    _said[what] = fact, now
    return True


def _say(level: int, event: str, words: str, *, problem: BaseException | None = None, **facts: Any) -> None:
    """Log an event. With `problem`, the record has its `exc_info`, or only the text of its traceback if the setting
    `log_errors` keeps the texts of errors out of the log: every handler of the process sees the record."""
    if not log.isEnabledFor(level):
        return
    path, line, function, _ = log.findCaller(stacklevel=2)
    extra = {"event": event, "facts": facts}
    record = log.makeRecord(log.name, level, path, line, "%s", (words.format(**facts),), None, function, extra)
    if problem is not None:
        info = (type(problem), problem, problem.__traceback__)
        if error_texts.shown():
            record.exc_info = info
        else:
            record.exc_text = error_texts.of_traceback(info)
    log.handle(record)


def _one_line(text: str) -> str:
    """Return a text cut short, with what cannot be printed escaped, so that it cannot forge a line of the log."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:500])


def _end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
