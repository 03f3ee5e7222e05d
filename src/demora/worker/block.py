"""A worker that runs for the length of an `async with` block. The block is cancelled if the worker dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..errors import WorkerDied
from .worker import Worker

RunningWorker = asyncio.Future[Exception | None]  # the error that ended the worker, None if it stopped normally


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    """Run a worker in the background during the block. If the worker cannot start, the block is not entered; if it dies,
    the block is cancelled. Both raise the worker's error, or `WorkerDied` if it gave up, unless the block was also
    cancelled from outside."""
    running: RunningWorker = asyncio.ensure_future(_run(worker))
    cancelled = False
    try:
        await _until_started(worker, running)
        if not _is_dead(running):
            with _CancelOnDeath(running):
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


async def _until_started(worker: Worker, running: RunningWorker) -> None:
    """Return when the worker has started, or ended before that."""
    starting = asyncio.ensure_future(worker.started.wait())
    both: set[asyncio.Future[Any]] = {starting, running}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        starting.cancel()


def _is_dead(running: RunningWorker) -> bool:
    return running.done() and not running.cancelled() and running.result() is not None


class _CancelOnDeath:
    """Cancels the current task if the worker dies during the block, and absorbs that cancellation at its end."""

    def __init__(self, running: RunningWorker) -> None:
        self._running, self._cancelled = running, False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self._running.add_done_callback(self._on_end)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> bool:
        self._running.remove_done_callback(self._on_end)
        if not self._cancelled:
            return False
        return self._task.uncancel() <= self._before and kind is asyncio.CancelledError

    def _on_end(self, running: RunningWorker) -> None:
        self._cancelled = _is_dead(running) and self._task.cancel()
