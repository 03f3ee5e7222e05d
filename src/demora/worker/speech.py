"""How the process of a slot speaks to its worker: frames on a socket, from any of its threads, and log records too."""

import logging
import os
import socket
import threading

from .. import error_texts
from .wire import HEAD, FromProcess, Logged, ToProcess, for_process, frame


class Closed(Exception):
    """The pipe is gone, or is not that of this process."""


class Line:
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

    def __init__(self, line: Line) -> None:
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
