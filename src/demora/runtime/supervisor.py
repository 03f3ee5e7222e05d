"""Several workers as one command: starts them, passes on signals, and replaces one that dies.

Each has a lifeline, a pipe that only the supervisor holds open. When it closes, the supervisor is gone, however it ended,
and the worker stops as if told to.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from ..system import notices

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a worker that died is replaced
SETTLED = 60.0  # seconds after which a worker counts as well: the next pause is short again
LAST_CALL = 10.0  # seconds beyond its grace that a worker without a supervisor has to end
_LIFELINE = "DEMORA_LIFELINE"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def supervise(command: Sequence[str], number: int) -> int:
    """Keep so many processes running this command until a signal, and answer with 0 or the code of one that ended badly.

    They get each signal once, whatever is typed at the terminal: they have sessions of their own.
    """
    return await _Supervisor(command, number).run()


def hold_lifeline(grace: timedelta) -> bool:
    """In a supervised process: stop when the supervisor is gone; does nothing in any other. Answers which it is."""
    fd = os.environ.pop(_LIFELINE, None)  # not for what this process starts
    if fd is not None:
        os.set_inheritable(int(fd), False)
        watch = threading.Thread(target=_outlive, args=(int(fd), grace.total_seconds()), name="demora-lifeline", daemon=True)
        watch.start()
    return fd is not None


class _Supervisor:
    def __init__(self, command: Sequence[str], number: int) -> None:
        self._command, self._number = list(command), number
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopping = asyncio.Event()
        self._lifeline = os.pipe()
        self._waiters = ThreadPoolExecutor(number, thread_name_prefix="demora-supervisor")

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._pass_on, each)
        try:
            codes = await asyncio.gather(*(self._keep() for _ in range(self._number)))
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)
            self._waiters.shutdown(wait=False)
            for fd in self._lifeline:
                os.close(fd)
        return next((code for code in codes if code), 0)

    async def _keep(self) -> int:
        """One worker after another, until one was told to end."""
        loop, pause, code = asyncio.get_running_loop(), FIRST_PAUSE, 0
        while not self._stopping.is_set():
            began = loop.time()
            worker = self._start()
            code = await loop.run_in_executor(self._waiters, worker.wait)
            self._running.discard(worker)
            if self._stopping.is_set():
                break
            pause = FIRST_PAUSE if loop.time() - began > SETTLED else pause
            notices.worker_died(worker.pid, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return 0 if -code in _SIGNALS else 128 - code if code < 0 else code  # told to end before it could hear

    def _start(self) -> "subprocess.Popen[bytes]":
        line, _ = self._lifeline
        environment = os.environ | {_LIFELINE: str(line)}
        worker = subprocess.Popen(self._command, env=environment, pass_fds=[line], start_new_session=True)
        self._running.add(worker)
        return worker

    def _pass_on(self, number: signal.Signals) -> None:
        self._stopping.set()
        for worker in self._running:
            worker.send_signal(number)


def _outlive(fd: int, grace: float) -> None:
    """Wait for the end of the supervisor, then stop this process as a signal would, and see to it that it ends."""
    os.read(fd, 1)
    notices.supervisor_gone()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + LAST_CALL)
    os._exit(1)
