"""Restarts a command when the code in a folder changes, for development.

It compares the times of the files twice a second: that needs no library and works on every file system, also in containers.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..settings import DEFAULT_FILE
from ..system import notices
from .supervisor import SIGNALS, exit_code, start_with_lifeline

LOOK_EVERY = 0.5  # seconds
_RELOADED = "DEMORA_RELOADED"
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}

FileTimes = Mapping[str, int]  # the times of files, in nanoseconds


async def run_and_reload(command: Sequence[str], folder: Path) -> int:
    """Keep one process of this command running until a signal, and restart it when a file changes.

    A process that ends by itself starts again at the next change. The files are `.py` files in the folder and below, and
    `demora.toml`. Hidden folders and virtual environments do not count.
    """
    return await _Reloader(command, folder).run()


def take_reloaded() -> bool:
    """Return whether a reloader started this process. Child processes do not inherit the answer."""
    return os.environ.pop(_RELOADED, None) is not None


def snapshot(folder: Path) -> FileTimes:
    """Return when each file that counts was last changed."""
    found = {}
    for path in _files(folder):
        with contextlib.suppress(OSError):  # deleted in the meantime
            found[path] = os.stat(path).st_mtime_ns
    return found


def changed(before: FileTimes, now: FileTimes) -> list[str]:
    """Return the files that were changed, added or deleted."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


class _Reloader:
    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = list(command), folder
        self._stopping = asyncio.Event()
        self._lifeline = os.pipe()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._pass_on, each)
        self._seen = snapshot(self._folder)
        try:
            code = 0
            while not self._stopping.is_set():
                code = await self._run_once()
            return code
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)
            for fd in self._lifeline:
                os.close(fd)

    async def _run_once(self) -> int:
        """Run the process until a change or a signal, and return its exit code. One that ended waits for the next change."""
        self._child = start_with_lifeline(self._command, self._lifeline[0], {_RELOADED: "1"})
        ended = asyncio.ensure_future(asyncio.to_thread(self._child.wait))
        looking = asyncio.ensure_future(self._change())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not self._stopping.is_set():
            notices.reload_waits(self._child.returncode)
            await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            notices.reloads(str(Path(looking.result()).relative_to(self._folder)))
            self._send(signal.SIGTERM)
        looking.cancel()
        stopping.cancel()
        return exit_code(await ended)

    async def _change(self) -> str:
        """Return the name of a changed file once there is one."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = await asyncio.to_thread(snapshot, self._folder)
            names, self._seen = changed(self._seen, now), now
            if names:
                return names[0]

    def _pass_on(self, number: signal.Signals) -> None:
        self._stopping.set()
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if self._child.returncode is None:
            self._child.send_signal(number)


def _files(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_skipped(root, name)]
        yield from (os.path.join(root, name) for name in files if name.endswith(".py") or name == DEFAULT_FILE)


def _is_skipped(root: str, name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED or os.path.exists(os.path.join(root, name, "pyvenv.cfg"))
