"""One process of a slot as its worker sees it: its pipe, what it said of the run it is at, and how it ended."""

import asyncio
import contextlib
import logging
import signal
from typing import Any

import msgspec

from ..context import Context
from ..spawned import Spawned
from .wire import HEAD, MOST_BYTES, Began, Ended, Logged, Said, ToProcess, Work, frame, from_process

PATIENCE = 1.0  # seconds between the end of a pipe and that of its process, either first


class Process:
    """A started process. `gone` is done when it is dead and reaped; `fate` then says how it ended."""

    def __init__(self, spawned: Spawned) -> None:
        self._spawned, self._loop = spawned, asyncio.get_running_loop()
        self._ctx: Context | None = None
        self._began: asyncio.Future[bool] = self._loop.create_future()
        self._ended: asyncio.Future[Ended | None] = self._loop.create_future()
        self.fate: str | None = None
        self.gone = asyncio.ensure_future(self._watch())

    async def begin(self, ctx: Context, work: Work, seconds: float) -> bool:
        """Give it a job; whether it got as far as calling the handler in this time."""
        self._ctx = ctx
        self._began, self._ended = self._loop.create_future(), self._loop.create_future()
        if self.fate is not None:
            return False
        self.tell(work)
        await asyncio.wait({self._began}, timeout=seconds)
        return self._began.done() and self._began.result()

    async def answered(self, seconds: float | None = None) -> None:
        """Return when it has said what its run came to, or has died, or the time is up."""
        await asyncio.wait({self._ended}, timeout=seconds)

    @property
    def answer(self) -> Ended | None:
        """What its run came to; None if it has not said so."""
        return self._ended.result() if self._ended.done() else None

    def tell(self, message: ToProcess) -> None:
        if self.fate is None:
            self._spawned.write(frame(message))

    def kill(self) -> None:
        """SIGKILL, for all that it started too; returns at once."""
        self._spawned.kill()

    async def _watch(self) -> None:
        """See it to its end. Its last words may come after its death, and its death after its last words."""
        listening = asyncio.ensure_future(self._listen())
        both: set[asyncio.Future[Any]] = {listening, self._spawned.exited}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(both, timeout=PATIENCE)
        closed = not self._spawned.exited.done()
        self.kill()
        code = await self._spawned.exited
        listening.cancel()
        self._spawned.close()
        self.fate = self.fate or ("closed its pipe" if closed else _fate(code))
        if not self._began.done():
            self._began.set_result(False)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _listen(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._spawned.reader.readexactly(HEAD))
                if size > MOST_BYTES:
                    raise ValueError(size)
                self._hear(await self._spawned.reader.readexactly(size))
                await asyncio.sleep(0)  # one that speaks without end lets others pass
        except (asyncio.IncompleteReadError, OSError):
            return
        except ValueError:  # also what msgspec raises
            self.fate = "sent what is no message: a handler wrote into its pipe"
            self.kill()

    def _hear(self, body: bytes) -> None:
        match from_process(body):
            case Began(lease) if self._is_current(lease):
                self._get_going()
            case Said(report) if self._is_current(report.lease) and self._ctx is not None:
                self._ctx.hear(report)
            case Ended(report=report) as ended if self._is_current(report.lease) and self._ctx is not None:
                self._ctx.hear(report)
                self._get_going()
                self._ended.set_result(ended)
            case Logged() as logged:
                _log(logged)

    def _is_current(self, lease: object) -> bool:
        return self._ctx is not None and self._ctx.job.lease == lease and not self._ended.done()

    def _get_going(self) -> None:
        if not self._began.done():
            self._began.set_result(True)


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended with signal {-code} ({signal.Signals(-code).name})"
    return f"ended with signal {-code}"


def _log(logged: Logged) -> None:
    """Handle a record as if it had been written here."""
    logger = logging.getLogger(logged.name)
    if logger.isEnabledFor(logged.levelno):
        logger.handle(logging.makeLogRecord(msgspec.structs.asdict(logged)))
