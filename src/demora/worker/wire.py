"""What a worker and the process of a slot say to each other: JSON in frames of known length, and never a pickle."""

from datetime import timedelta

import msgspec

from ..core.outcome import GaveUp, Raised, Snoozed, Succeeded
from ..store import ClaimedJob, Lease, Report
from .home import Home, Place

HEAD = 4  # bytes that say how long a frame is
MOST_BYTES = 16 * 1024 * 1024  # of a frame; the largest payload, result and log together stay far below


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first words: where the application is, which database it was given and whether another process can open it, and
    from which level on records count."""

    home: Home
    database_url: str
    redis_url: str | None
    shared: bool
    level: int


class Work(msgspec.Struct, frozen=True, tag=True):
    """Run this job; `place` is where its function was defined, `memory` what it may use."""

    job: ClaimedJob
    worker_id: str
    ran: timedelta
    place: Place
    memory: int | None


class End(msgspec.Struct, frozen=True, tag=True):
    """Whatever runs should end."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """All is imported; the handler is called now."""

    lease: Lease


class Said(msgspec.Struct, frozen=True, tag=True):
    """What the handler reported."""

    report: Report


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A log record, to be handled by the worker's logging as if it had been written there."""

    name: str
    levelno: int
    levelname: str
    msg: str
    created: float
    pathname: str
    lineno: int
    exc_text: str | None
    job_id: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """What the run came to, with the last report; no outcome if it was cancelled as told. `signal` says that the handler
    asked for a retry or a failure by raising the signal."""

    report: Report
    outcome: Succeeded | Raised | Snoozed | GaveUp | None
    signal: bool = False


ToProcess = Hello | Work | End
FromProcess = Began | Said | Logged | Ended

for_process = msgspec.json.Decoder(ToProcess).decode
from_process = msgspec.json.Decoder(FromProcess).decode


def frame(message: ToProcess | FromProcess) -> bytes:
    body = msgspec.json.encode(message)
    return len(body).to_bytes(HEAD) + body
