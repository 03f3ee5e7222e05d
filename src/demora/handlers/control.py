"""What a handler raises to speak to the worker, with a root of its own, so that `except DemoraError` lets it pass.

A reason and a `detail` are text, or whatever `str` makes text of.
"""

from datetime import timedelta

from ..core.spans import span


class Signal(Exception):
    """The root of all that a handler may raise to say what should become of its job."""


class Retry(Signal):
    """This attempt failed; try again, after `after` instead of the usual backoff if given. `detail` is kept with the
    attempt, in the place of a traceback, and not logged."""

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


class Snooze(Signal):
    """Not now: call me again after `delay`; this run does not count as an attempt."""

    def __init__(self, delay: timedelta | str) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = span(delay, "delay")


class Cancel(Signal):
    """End the job as CANCELLED."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


class Fail(Signal):
    """End the job as FAILED at once: trying again is useless. `detail` is kept with the attempt, in the place of a
    traceback, and not logged."""

    def __init__(self, reason: str = "the handler says that trying again is useless", *, detail: object = None) -> None:
        super().__init__(reason)
        self.detail = detail
