"""What a worker and the process of a slot say to each other: JSON in frames of known length, and never a pickle."""

import logging
import os
import socket
import threading
from datetime import timedelta

import msgspec

from ...core.verdict import GaveUp, Raised, Snoozed, Succeeded
from ...store.jobs import ClaimedJob, Lease, Report
from ...system import error_texts
from .location import AppLocation, ImportPath

HEAD = 4  # bytes that say how long a frame is
MOST_BYTES = 16 * 1024 * 1024  # of a frame; the largest payload, result and log together stay far below


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first words: where the application is, which database it was given and whether another process can open it, and
    from which level on records count."""

    home: AppLocation
    database_url: str
    redis_url: str | None
    shared: bool
    level: int


class Work(msgspec.Struct, frozen=True, tag=True):
    """Run this job; `place` is where its function was defined, `memory` what it may use."""

    job: ClaimedJob
    worker_id: str
    ran: timedelta
    place: ImportPath
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


class RunEnded(msgspec.Struct, frozen=True, tag=True):
    """What the run came to, with the last report; no outcome if it was cancelled as told. `signal` says that the handler
    asked for a retry or a failure by raising the signal."""

    report: Report
    outcome: Succeeded | Raised | Snoozed | GaveUp | None
    signal: bool = False


ToProcess = Hello | Work | End
FromProcess = Began | Said | Logged | RunEnded

for_process = msgspec.json.Decoder(ToProcess).decode
from_process = msgspec.json.Decoder(FromProcess).decode


def frame(message: ToProcess | FromProcess) -> bytes:
    body = msgspec.json.encode(message)
    return len(body).to_bytes(HEAD) + body


# How the process of a slot speaks to its worker: frames on a socket, from any of its threads, and log records too.


class Closed(Exception):
    """The pipe is gone, or is not that of this process."""


class Pipe:
    """The pipe. A fork of this process has none."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._disown)

    def send(self, message: FromProcess) -> None:
        """Send a whole frame; `Closed` if that is not possible."""
        framed = frame(message)
        try:
            with self._lock:
                self._socket.sendall(framed)
        except OSError as problem:
            raise Closed from problem

    def receive(self) -> ToProcess | None:
        """The next message; None when the worker is gone."""
        size = self._read(HEAD)
        body = None if size is None else self._read(int.from_bytes(size))
        return None if body is None else for_process(body)

    def _read(self, size: int) -> bytes | None:
        read = bytearray()
        while len(read) < size:
            try:
                part = self._socket.recv(size - len(read))
            except OSError:
                return None
            if not part:
                return None
            read += part
        return bytes(read)

    def _disown(self) -> None:
        self._lock = threading.Lock()
        self._socket.close()


class Relay(logging.Handler):
    """Sends records to the worker, whose logging is set up; in a fork they go to stderr."""

    def __init__(self, line: Pipe) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line.send(self._told(record))
        except Closed:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
        except Exception:
            self.handleError(record)

    def _told(self, record: logging.LogRecord) -> Logged:
        exc_text = error_texts.of_traceback(record.exc_info) if record.exc_info else record.exc_text
        return Logged(
            name=record.name,
            levelno=record.levelno,
            levelname=record.levelname,
            msg=_sendable(record.getMessage()),
            created=record.created,
            pathname=record.pathname,
            lineno=record.lineno,
            exc_text=None if exc_text is None else _sendable(exc_text),
            job_id=getattr(record, "job_id", "-"),
        )


MOST_TEXT = 100_000  # characters of a message


def _sendable(text: str) -> str:
    return text[:MOST_TEXT].encode("utf-8", "backslashreplace").decode()
