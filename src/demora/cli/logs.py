"""The log of a service or worker: text for people, or one JSON object per line for programs."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from ..core.spans import timestamp
from ..handlers.context import stamp_records
from ..settings import Settings
from ..system import error_texts, notices
from .output import plain

_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


class Lines(logging.Formatter):
    """Formats a record as one line: time, level, job id unless the message has it, message. Control characters are escaped.

    The lines of a traceback follow. With `colour`, warnings and errors are coloured.
    """

    default_msec_format = "%s.%03d"

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colours = _COLOURS if colour else {}

    def format(self, record: logging.LogRecord) -> str:
        job_id, message = _job_id(record), plain(record.getMessage())
        inside = "" if job_id is None or job_id in message else f"[{job_id}] "
        line = f"{self.formatTime(record)} {self._level(record)} {inside}{message}"
        return "\n".join([line, *self._traceback(record)])

    def _level(self, record: logging.LogRecord) -> str:
        name, colour = f"{record.levelname:<7}", self._colours.get(record.levelname)
        return name if colour is None else f"\x1b[{colour}m{name}\x1b[0m"

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        text = error_texts.of_traceback(record.exc_info) if record.exc_info else record.exc_text or ""
        return [plain(line) for line in text.splitlines()]


class Objects(logging.Formatter):
    """Formats a record as one JSON object: time, level, event and message, then the facts. Non-ASCII text is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
            "logger": record.name,
        }
        if (job_id := _job_id(record)) is not None:
            said["jobId"] = job_id
        said |= {_camel(name): value for name, value in getattr(record, "facts", {}).items()}
        if record.exc_info:
            said["traceback"] = error_texts.of_traceback(record.exc_info)
        elif record.exc_text:
            said["traceback"] = record.exc_text
        return json.dumps(said, default=str).replace("\x7f", "\\u007f")


def to_stderr(settings: Settings) -> None:
    """Log to stderr from now on, in the format and at the level that the settings name. A terminal shows each completed
    job."""
    stamp_records()
    error_texts.configure(settings.log_errors)
    handler = logging.StreamHandler(sys.stderr)
    notices.show_ends(sys.stderr.isatty())
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(Objects() if settings.log_format == "json" else Lines(colour=colour))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


@contextmanager
def schema_progress() -> Iterator[None]:
    """Show on stderr what a migration does meanwhile, and the warnings that a command without a log shows anyway."""
    log, shown = logging.getLogger("demora"), _SchemaProgress()
    level = log.level
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(shown)


class _SchemaProgress(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or getattr(record, "event", "").startswith("schema."):
            click.echo(plain(record.getMessage()), err=True)


def _job_id(record: logging.LogRecord) -> str | None:
    job_id: str = getattr(record, "job_id", "-")
    return None if job_id == "-" else job_id


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
