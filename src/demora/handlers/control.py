"""What a handler raises to decide what becomes of its job.

They have a root of their own, so that `except DemoraError` does not catch them. A reason and a `detail` may be any object;
the worker stores them as text by `str`.
"""

from datetime import timedelta

from ..core.spans import span
from ..core.verdict import WHILE_RUNNING


class ControlFlow(Exception):
    """The root of what a handler raises to decide what becomes of its job."""


class Retry(ControlFlow):
    """Fail this attempt and try again, after `after` if given, otherwise after the usual backoff. `detail` is stored with
    the attempt in place of a traceback, and not logged."""

    def __init__(
        self,
        reason: str = "the handler asked for a retry",
        *,
        after: timedelta | str | None = None,
        detail: object = None,
    ) -> None:
        super().__init__(reason)
        self.detail = detail
        self.after = None if after is None else span(after, "after")


class Snooze(ControlFlow):
    """Run the job again after `delay`. This run does not count as an attempt."""

    def __init__(self, delay: timedelta | str) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = span(delay, "delay")


class Cancel(ControlFlow):
    """End the job as CANCELLED."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


class EndRequested(Cancel):
    """The worker has asked this run to end, and `ctx.raise_if_cancelled` ends it. After a caller's cancel the job ends as
    CANCELLED; after a timeout or the stop of the worker it ends as an interrupted async handler does."""

    def __init__(self) -> None:
        super().__init__(WHILE_RUNNING)


class Fail(ControlFlow):
    """End the job as FAILED at once, without further attempts. `detail` is stored with the attempt in place of a traceback,
    and not logged."""

    def __init__(self, reason: str = "the handler says that trying again is useless", *, detail: object = None) -> None:
        super().__init__(reason)
        self.detail = detail
