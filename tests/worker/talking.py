"""Speaking to the process of a slot as its worker does, message by message."""

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from demora.store.jobs import ClaimedJob
from demora.system import child_process
from demora.worker.processes.location import AppLocation, ImportPath
from demora.worker.processes.messages import HEAD, FromProcess, Hello, RunEnded, ToProcess, Work, frame, from_process
from tests.builders import claimed_job

HERE = ImportPath("tests.worker.process_jobs")
PATIENCE = 120.0  # seconds

M = TypeVar("M", bound=FromProcess)


class Talk:
    """A process at the other end of a pipe, and what it wrote to stderr once it is gone."""

    def __init__(self, pipe: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self._pipe, self._process = pipe, process
        self.pid = process.pid
        self.errors = ""

    def greet(
        self, place: ImportPath = HERE, *others: ImportPath, database_url: str = "sqlite://", shared: bool = True
    ) -> None:
        self.tell(Hello(AppLocation(place, "app", others), database_url, None, shared=shared, level=logging.INFO))

    def tell(self, message: ToProcess) -> None:
        self._pipe.sendall(frame(message))

    def give(self, type: str, payload: Any = None, *, place: ImportPath = HERE, memory: int | None = None) -> ClaimedJob:
        """Have it run a job."""
        job = claimed_job(type=type, payload=msgspec.json.encode(payload or {}))
        self.tell(Work(job, "ann", timedelta(0), place, memory))
        return job

    def hear(self) -> FromProcess:
        """The next message."""
        return from_process(self._read(int.from_bytes(self._read(HEAD))))

    def hear_next(self, kind: type[M]) -> M:
        """The next message of this kind; others are passed over."""
        while not isinstance(message := self.hear(), kind):
            pass
        return message

    def outcome(self, type: str, payload: Any = None, **options: Any) -> Any:
        """What a job came to."""
        job = self.give(type, payload, **options)
        ended = self.hear_next(RunEnded)
        assert ended.report.lease == job.lease
        return ended.outcome

    def await_words(self) -> None:
        """Return when there is something to read, and leave it there."""
        assert self._pipe.recv(1, socket.MSG_PEEK)

    def close(self) -> int:
        """Close the pipe as a worker does by dying; answers with the exit code of the process, which ends by itself."""
        self._pipe.close()
        if self._process.returncode is None:
            self.errors = self._process.communicate(timeout=PATIENCE)[1].decode()
        return self._process.returncode

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            part = self._pipe.recv(size - len(read))
            assert part, "the process is gone"
            read += part
        return read


@contextmanager
def talk(*, session: bool = False) -> Iterator[Talk]:
    """A process of a slot. Without a session of its own it is no leader of its group, and ends itself alone."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    with ours, theirs:
        command = [sys.executable, "-c", child_process._CHILD, str(theirs.fileno()), *sys.path]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()], start_new_session=session)
        theirs.close()
        spoken = Talk(ours, process)
        with process:
            try:
                yield spoken
                spoken.close()
            finally:
                process.kill()
