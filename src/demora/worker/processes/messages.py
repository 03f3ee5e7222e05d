"""The messages between a worker and a child process, and the pipe as the child uses it.

A message is JSON in a frame that begins with its length, and never a pickle: a handler can write anything into the pipe.
"""

import logging
import os
import socket
import threading
from datetime import timedelta

import msgspec

from ...core.verdict import Cancelled, Raised, Snoozed, Succeeded
from ...store.jobs import ClaimedJob, Lease, Report
from ...system import error_texts
from .location import AppLocation, ImportPath

HEAD = 4  # bytes of the length of a frame
MOST_BYTES = 16 * 1024 * 1024  # of a frame; the largest payload, result and log together stay far below
MOST_TEXT = 100_000  # characters of a log message


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The worker's first message: where the application can be imported from, which database it uses, whether another
    process can open that database (`shared`), and the level of the worker's log."""

    home: AppLocation
    database_url: str
    redis_url: str | None
    shared: bool
    level: int


class Work(msgspec.Struct, frozen=True, tag=True):
    """Run this job. `defined_in` is the module of its function; `memory` is the most bytes that it may use."""

    job: ClaimedJob
    worker_id: str
    ran: timedelta
    defined_in: ImportPath
    memory: int | None


class End(msgspec.Struct, frozen=True, tag=True):
    """End the current run."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """The application is imported, and the process calls the handler now."""

    lease: Lease


class Said(msgspec.Struct, frozen=True, tag=True):
    """The handler has reported progress or log lines."""

    report: Report


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A log record, which the worker handles as if it had written it."""

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
    """The outcome of the run, with the last report. The outcome is None if the run was cancelled after `End`. `signal` says
    that the handler raised `Retry` or `Fail`."""

    report: Report
    outcome: Succeeded | Raised | Snoozed | Cancelled | None
    signal: bool = False


ToProcess = Hello | Work | End
FromProcess = Began | Said | Logged | RunEnded

for_process = msgspec.json.Decoder(ToProcess).decode
from_process = msgspec.json.Decoder(FromProcess).decode


def frame(message: ToProcess | FromProcess) -> bytes:
    """Return the bytes of a message with its length."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(HEAD) + body


class Closed(Exception):
    """The pipe is closed, or belongs to the parent of this fork."""


class Pipe:
    """The pipe of a child process to its worker. Any thread may send. A fork of the process closes its copy."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._disown)

    def send(self, message: FromProcess) -> None:
        """Send a whole message; raises `Closed` if that is not possible."""
        framed = frame(message)
        try:
            with self._lock:
                self._socket.sendall(framed)
        except OSError as problem:
            raise Closed from problem

    def receive(self) -> ToProcess | None:
        """Return the next message; None when the worker is gone."""
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
    """Sends log records to the worker, which has logging set up. In a fork they go to stderr."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._pipe.send(self._message(record))
        except Closed:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
        except Exception:
            self.handleError(record)

    def _message(self, record: logging.LogRecord) -> Logged:
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


def _sendable(text: str) -> str:
    return text[:MOST_TEXT].encode("utf-8", "backslashreplace").decode()
