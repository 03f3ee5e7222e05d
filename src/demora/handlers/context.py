"""The context of a run: tells a handler about its job, and takes its progress and log lines."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..errors import Invalid
from ..store.jobs import MOST_LINE, MOST_LINES, ClaimedJob, Report
from .control import EndRequested

_CUT = "… more lines were written than a run may keep"

_current: ContextVar["Context | None"] = ContextVar("demora_run", default=None)


class ContextSchedule(msgspec.Struct, frozen=True):
    """The schedule that added the job of a run. `slot_at` is the fire time of the job, None if a caller triggered it."""

    name: str
    slot_at: datetime | None


class Context:
    """One run of a job, as its handler sees it. All methods are thread-safe."""

    __slots__ = (
        *("began", "job", "worker_id"),
        *("_cancel_requested", "_lines", "_message", "_monotonic", "_news", "_progress", "_written"),
    )

    def __init__(self, job: ClaimedJob, worker_id: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.job, self.worker_id, self._monotonic = job, worker_id, monotonic
        self.began = monotonic()
        self._progress: float | None = None
        self._message: str | None = None
        self._lines: list[tuple[timedelta, str]] = []
        self._written = 0
        self._news = False
        self._cancel_requested = False

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.lease.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, 1 for the first."""
        return self.job.retry_state.attempt

    @property
    def schedule(self) -> ContextSchedule | None:
        """The schedule that added the job, None if no schedule did."""
        name = self.job.schedule
        return None if name is None else ContextSchedule(name, self.job.slot_at)

    @property
    def cancel_requested(self) -> bool:
        """Whether this run should end: a caller cancelled the job, its time is up, or the worker stops."""
        return self._cancel_requested

    def raise_if_cancelled(self) -> None:
        """End this run if it should end, by raising an exception that the worker understands. A plain function, which cannot
        be interrupted, calls this now and then; a cancelled job then ends as CANCELLED, where a plain `return` would
        complete it."""
        if self._cancel_requested:
            raise EndRequested

    def request_cancel(self) -> None:
        """Set `cancel_requested`."""
        self._cancel_requested = True

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Report the progress of the job, from 0 to 1; callers see it within a second. `Invalid` for NaN and infinities."""
        part = float(fraction)
        if not math.isfinite(part):
            raise Invalid("fraction", f"must be a number from 0 to 1, not {part}")
        self._progress = min(max(part, 0.0), 1.0)
        self._message = None if message is None else _clean(message)
        self._news = True

    def log(self, line: str) -> None:
        """Add a line to the job's log. A run keeps its first 200 lines."""
        self._write(self.ran(), line)

    def merge(self, report: Report) -> None:
        """Take over the progress and log lines that the process of this run has reported."""
        for at, line in report.log:
            self._write(at, line)
        if report.progress is not None:
            self.progress(report.progress, report.message)

    def ran(self) -> timedelta:
        """Return the time since the run began."""
        return timedelta(0, self._monotonic() - self.began)

    @property
    def has_news(self) -> bool:
        """Whether there is progress or a log line since the last report."""
        return self._news

    def report(self) -> Report:
        """Return the progress, and the log lines since the last report."""
        self._news = False
        lines = tuple(self._pop_lines()) if self._lines else ()
        return Report(self.job.lease, self.ran(), self._progress, self._message, lines)

    def restore(self, report: Report) -> None:
        """Put back a report that could not be recorded, so that the next one contains it."""
        self._lines[:0] = report.log
        self._news = True

    def _pop_lines(self) -> Iterator[tuple[timedelta, str]]:
        """Remove the lines one by one from the same list, since another thread may add or remove lines meanwhile."""
        with contextlib.suppress(IndexError):
            while True:
                yield self._lines.pop(0)

    def _write(self, at: timedelta, line: str) -> None:
        self._written += 1
        if self._written <= MOST_LINES:
            self._lines.append((at, _clean(line)))
        elif self._written == MOST_LINES + 1:
            self._lines.append((at, _CUT))
        self._news = True


def current_run() -> Context | None:
    """Return the run that the calling code is part of, if any."""
    return _current.get()


def current_job() -> tuple[str, str] | None:
    """Return the id and type of the job that the calling code runs for, if any."""
    run = _current.get()
    return None if run is None else (run.id, run.job.type)


enter = _current.set  # makes a context the current run of the calling task or thread


def stamp_records() -> None:
    """Give every log record a `job_id` from now on: the id of the job whose run wrote it, or `-`."""
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


def _clean(text: str) -> str:
    """Return text of bounded length that every engine can store."""
    return str(text)[:MOST_LINE].replace("\0", "�").encode("utf-8", "replace").decode()
