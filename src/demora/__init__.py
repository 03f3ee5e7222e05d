"""demora: run jobs later, on time, and without slowing down the work that must run now."""

from .app import Demora
from .core.filters import JobFilter, Sort, TimeRange
from .core.job import Job, Priority
from .core.states import Status
from .errors import DemoraError
from .handlers.context import Context, current_run
from .handlers.control import Cancel, Fail, Retry, Snooze
from .handlers.job_function import JobFunction

__version__ = "0.1.0"

__all__ = [
    "Cancel",
    "Context",
    "Demora",
    "DemoraError",
    "Fail",
    "Job",
    "JobFilter",
    "JobFunction",
    "Priority",
    "Retry",
    "Snooze",
    "Sort",
    "Status",
    "TimeRange",
    "current_run",
]
