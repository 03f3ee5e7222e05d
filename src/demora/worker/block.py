"""A worker for as long as a block lasts: the block begins once it works, and does not outlast it if it dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..errors import WorkerDied
from .worker import Worker

Running = asyncio.Future[Exception | None]  # what the worker died of, once it has ended


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    """Run a worker beside the block. If it cannot start, the block is not entered; if it dies, the block is cancelled.
    Either raises what it died of, `WorkerDied` if it gave up, unless the block was cancelled by somebody else too."""
    running: Running = asyncio.ensure_future(_run(worker))
    cancelled = False
    try:
        await _begun(worker, running)
        if not _is_dead(running):
            with _CutShort(running):
                yield worker
    except asyncio.CancelledError:
        cancelled = True
        raise
    finally:
        worker.stop()
        died_of = await running
        if died_of is not None and not cancelled:
            raise died_of


async def _run(worker: Worker) -> Exception | None:
    try:
        await worker.run()
    except Exception as problem:
        return problem
    return None if worker.trouble is None else WorkerDied(worker.id, worker.trouble)


async def _begun(worker: Worker, running: Running) -> None:
    """Return when the worker works, or has ended before it did."""
    begun = asyncio.ensure_future(worker.started.wait())
    both: set[asyncio.Future[Any]] = {begun, running}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        begun.cancel()


def _is_dead(running: Running) -> bool:
    return running.done() and not running.cancelled() and running.result() is not None


class _CutShort:
    """Cancels the task that entered it if the worker dies, and stops that cancel at its end."""

    def __init__(self, running: Running) -> None:
        self._running, self._cut = running, False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self._running.add_done_callback(self._ended)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> bool:
        self._running.remove_done_callback(self._ended)
        if not self._cut:
            return False
        return self._task.uncancel() <= self._before and kind is asyncio.CancelledError

    def _ended(self, running: Running) -> None:
        self._cut = _is_dead(running) and self._task.cancel()
