"""The log of a service or worker, for people: time, level, the job it was written for, message."""

import logging
import sys

from .. import notices
from .text import plain


class Lines(logging.Formatter):
    """One line a record, with nothing in it that moves the cursor; tracebacks follow line by line."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        job_id = getattr(record, "job_id", "-")
        inside = "" if job_id == "-" else f"[{job_id}] "
        line = f"{self.formatTime(record)} {record.levelname:<7} {inside}{plain(record.getMessage())}"
        return "\n".join([line, *self._traceback(record)])

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        text = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        return [plain(line) for line in text.splitlines()]


def to_stderr() -> None:
    """Write what is logged from now on to stderr, from INFO up."""
    notices.stamp_records()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
