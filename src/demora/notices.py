"""What demora says in its log: every fact has its wording here, and ids instead of payloads."""

import logging
import traceback
from pathlib import PurePath
from typing import Any

from .context import current_run

log = logging.getLogger("demora")


def worker_started(worker_id: str, slots: int, queues: str, types: int) -> None:
    log.info("worker %s started: %d slots, queues %s, %d types", worker_id, slots, queues, types)


def worker_stopping(worker_id: str, running: int, grace: float) -> None:
    log.info("worker %s stops: %d running, up to %.1f s for them to end", worker_id, running, grace)


def worker_stopped(worker_id: str, handed_back: int) -> None:
    log.info("worker %s stopped: %d jobs handed back", worker_id, handed_back)


def worker_stuck(worker_id: str, stuck: int, slots: int) -> None:
    log.error("worker %s drains and exits: %d of %d slots are held by runs that did not end", worker_id, stuck, slots)


def job_failed(id: str, type: str, status: str, attempt: int, error: str) -> None:
    log.warning("job %s (%s) attempt %d failed, now %s: %s", id, type, attempt, status, _one_line(error))


def job_lapsed(id: str, worker_id: str | None) -> None:
    log.warning("job %s: the lease of worker %s lapsed", id, worker_id)


def job_unknown(id: str, type: str) -> None:
    log.warning("job %s is handed back: this worker has no handler for type %s", id, type)


def lease_lost(id: str, type: str) -> None:
    log.warning("job %s (%s): its lease was lost; what it did here is not recorded", id, type)


def run_timed_out(id: str, type: str, seconds: float) -> None:
    log.warning("job %s (%s) ran longer than its timeout of %.3f s", id, type, seconds)


def run_ignores_end(id: str, type: str) -> None:
    log.error("job %s (%s) goes on although its run was ended; its slot stays taken", id, type)


def store_trouble(what: str, problem: Exception, seconds: float) -> None:
    log.error("%s failed, next try in %.1f s: %s", what, seconds, _one_line(str(problem)))


def tidied(expired: int, removed: int) -> None:
    log.info("tidied up: %d jobs expired, %d ended jobs deleted", expired, removed)


def keeper_died(problem: BaseException) -> None:
    log.error("renewing leases has failed for good, the worker stops: %r", problem)


def settlement_dropped(id: str, problem: Exception) -> None:
    log.error("job %s: its end could not be recorded, so its lease will lapse: %r", id, problem)


def hook_failed(which: str, problem: BaseException) -> None:
    log.error("%s hook failed: %r", which, problem)


def service_started(url: str, database: str) -> None:
    log.info("service at %s, jobs in %s", url, database)


def service_reachable(host: str, hosts: str) -> None:
    log.warning("others can reach %s: they need an API key and one of the host names %s; TLS is for a proxy", host, hosts)


def use_not_noted(key_id: str, problem: Exception) -> None:
    log.warning("API key %s: its use could not be noted: %s", key_id, type(problem).__name__)


def request_failed(method: str, path: str, problem: BaseException) -> None:
    """Says what kind of error and where, not its text: that may repeat what a client sent."""
    frames = traceback.extract_tb(problem.__traceback__)[-5:]
    places = " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
    log.error("%s %s failed: %s at %s", method, _one_line(path), type(problem).__name__, places)


def stamp_records() -> None:
    """Put `job_id` on every log record from now on: the id of the job it was written for, or `-`."""
    make = logging.getLogRecordFactory()
    if getattr(make, "stamps_jobs", False):
        return

    def stamped(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        run = current_run()
        record.job_id = "-" if run is None else run.id
        return record

    stamped.stamps_jobs = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(stamped)


def _one_line(text: str) -> str:
    """Escaped, so that nobody's text can forge a line of the log, and short."""
    return text[:500].encode("unicode_escape").decode()
