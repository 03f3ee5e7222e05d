"""Runs several worker processes under one command: starts them, forwards signals, and replaces a worker that dies.

Each worker has a lifeline: a pipe that only the supervisor holds open. When the pipe closes, the supervisor has ended, and
the worker stops as on SIGTERM.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from ..system import notices

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a dead worker is replaced
SETTLED = 60.0  # seconds after which a worker counts as healthy, and the next pause is short again
KILLED_AFTER = 10.0  # seconds after its grace period until a worker without a supervisor is killed
REFUSED = 78  # the exit code of a worker that its service refuses: EX_CONFIG, since only other settings can help
_LIFELINE = "DEMORA_LIFELINE"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def supervise(command: Sequence[str], number: int) -> int:
    """Keep `number` processes of this command running until a signal. Returns 0, or the exit code of one that failed.

    Each process has its own session, so it gets a signal only once, from the supervisor, even on Ctrl-C in a terminal.
    """
    return await _Supervisor(command, number).run()


def hold_lifeline(grace: timedelta) -> bool:
    """In a supervised process, stop when the supervisor ends. Returns whether this process is supervised."""
    fd = os.environ.pop(_LIFELINE, None)  # child processes must not inherit it
    if fd is not None:
        os.set_inheritable(int(fd), False)
        watch = threading.Thread(
            target=_watch_lifeline, args=(int(fd), grace.total_seconds()), name="demora-lifeline", daemon=True
        )
        watch.start()
    return fd is not None


def start_with_lifeline(
    command: Sequence[str], lifeline: int, variables: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process that stops when the other end of the lifeline closes. It gets signals only from its supervisor."""
    environment = os.environ | {_LIFELINE: str(lifeline), **(variables or {})}
    return subprocess.Popen(command, env=environment, pass_fds=[lifeline], start_new_session=True)


def exit_code(code: int) -> int:
    """Return the exit code for the end of a child. A signal before the child could handle it is no failure."""
    return 0 if -code in SIGNALS else 128 - code if code < 0 else code


class _Supervisor:
    def __init__(self, command: Sequence[str], number: int) -> None:
        self._command, self._number = list(command), number
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopping = asyncio.Event()
        self._lifeline = os.pipe()
        self._waiters = ThreadPoolExecutor(number, thread_name_prefix="demora-supervisor")

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._pass_on, each)
        try:
            codes = await asyncio.gather(*(self._keep() for _ in range(self._number)))
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)
            self._waiters.shutdown(wait=False)
            for fd in self._lifeline:
                os.close(fd)
        return next((code for code in codes if code), 0)

    async def _keep(self) -> int:
        """Run one worker, and replace it whenever it dies, until a signal. Returns the exit code of the last one. A worker
        that its service refuses is not replaced: it ends all of them."""
        loop, pause, code = asyncio.get_running_loop(), FIRST_PAUSE, 0
        while not self._stopping.is_set():
            began = loop.time()
            worker = self._start()
            code = await loop.run_in_executor(self._waiters, worker.wait)
            self._running.discard(worker)
            if code == REFUSED:
                self._pass_on(signal.SIGTERM)
            if self._stopping.is_set():
                break
            pause = FIRST_PAUSE if loop.time() - began > SETTLED else pause
            notices.worker_died(worker.pid, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return exit_code(code)

    def _start(self) -> "subprocess.Popen[bytes]":
        worker = start_with_lifeline(self._command, self._lifeline[0])
        self._running.add(worker)
        return worker

    def _pass_on(self, number: signal.Signals) -> None:
        self._stopping.set()
        for worker in self._running:
            worker.send_signal(number)


def _watch_lifeline(fd: int, grace: float) -> None:
    """Wait for the end of the supervisor, send this process SIGTERM, and kill it if it does not end in time."""
    os.read(fd, 1)
    notices.supervisor_gone()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + KILLED_AFTER)
    os._exit(1)
