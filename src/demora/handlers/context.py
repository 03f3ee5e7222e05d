"""What a handler knows of the run it is in, and how it speaks back while running."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from ..errors import Invalid
from ..store.jobs import ClaimedJob, Report

MOST_LINES = 200  # of one run
MOST_LINE = 1000  # characters
_CUT = "… more lines were written than a run may keep"

_current: ContextVar["Context | None"] = ContextVar("demora_run", default=None)


class Context:
    """One run of a job, as its handler sees it. Its methods may be called from any thread."""

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
        return self.job.lease.id

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self.job.standing.attempt

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody wants this job cancelled: plain functions look here now and then, and raise `Cancel`."""
        return self._cancel_requested

    def request_cancel(self) -> None:
        self._cancel_requested = True

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the job is, from 0 to 1; shown within a second. `Invalid` for NaN and infinities."""
        part = float(fraction)
        if not math.isfinite(part):
            raise Invalid("fraction", f"must be a number from 0 to 1, not {part}")
        self._progress = min(max(part, 0.0), 1.0)
        self._message = None if message is None else _clean(message)
        self._news = True

    def log(self, line: str) -> None:
        """Add a line to the job's log; a run keeps its first 200."""
        self._write(self.ran(), line)

    def hear(self, report: Report) -> None:
        """Say what another process reported of this run."""
        for at, line in report.log:
            self._write(at, line)
        if report.progress is not None:
            self.progress(report.progress, report.message)

    def ran(self) -> timedelta:
        return timedelta(0, self._monotonic() - self.began)

    @property
    def has_news(self) -> bool:
        return self._news

    def report(self) -> Report:
        """What was said since the last report."""
        self._news = False
        lines = tuple(self._taken()) if self._lines else ()
        return Report(self.job.lease, self.ran(), self._progress, self._message, lines)

    def unsay(self, report: Report) -> None:
        """Take a report back that could not be recorded, to say it again."""
        self._lines[:0] = report.log
        self._news = True

    def _taken(self) -> Iterator[tuple[timedelta, str]]:
        """Take out line by line, always from the same list: another thread may be about to add to it, or take from it."""
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
    """The run that the calling code is part of, if any."""
    return _current.get()


def current_job() -> tuple[str, str] | None:
    """The id and type of the job that the calling code runs for, if any."""
    run = _current.get()
    return None if run is None else (run.id, run.job.type)


def enter(context: Context) -> None:
    """Make `context` the current run of the calling task or thread."""
    _current.set(context)


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


def _clean(text: str) -> str:
    """Text that every engine can store, of bounded length."""
    return str(text)[:MOST_LINE].replace("\0", "�").encode("utf-8", "replace").decode()
