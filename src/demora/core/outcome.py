"""What a run of a job came to, before anything is decided about it."""

from datetime import timedelta

import msgspec


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; `result` is JSON."""

    result: bytes


class Raised(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, timed out or could not be given its payload. `after` is the wait that it asked for."""

    error: str
    traceback: str | None = None
    permanent: bool = False
    after: timedelta | None = None


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called later; this run does not count."""

    delay: timedelta


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """The handler ended the job as cancelled, by its own wish or obeying a recorded one."""

    reason: str


class HandedBack(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped before the run ended; this run does not count."""


class NoHandler(msgspec.Struct, frozen=True, tag=True):
    """The worker has no handler for the type; this run does not count."""


class Lapsed(msgspec.Struct, frozen=True, tag=True):
    """The lease ran out: the worker died, or was cut off for longer than its lease."""

    worker_id: str | None


Outcome = Succeeded | Raised | Snoozed | GaveUp | HandedBack | NoHandler | Lapsed
