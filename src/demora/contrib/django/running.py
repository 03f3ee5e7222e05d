"""Runs a task as the handler of its job: with fresh database connections, and with Django's signals around it."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from ...core.job import Job
from ...handlers.context import Context, current_run
from ...handlers.control import Cancel, Fail, Snooze
from .results import in_django, result_of
from .tasks_api import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskError,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from .applications import TasksApplication

T = TypeVar("T")


def handler_function(app: "TasksApplication", task: AnyTask) -> Callable[..., Any]:
    """Return the function that a worker calls for the jobs of a task. It calls the task that is registered by then.

    A plain task runs in a thread of the worker. An async one runs on its event loop, with a thread of its own for what it
    calls through `sync_to_async`. In that thread, old and broken connections are closed before and after each task. In a
    sandbox that thread is the one of the test, whose connections the task shares.
    """
    type = task.module_path

    def call(args: list[Any], kwargs: dict[str, Any], priority: int = 0) -> Any:
        if app.sandbox is None or app.sandbox.loop is None:
            return attempt(args, kwargs)
        running = on_test_thread(app, functools.partial(attempt, args, kwargs))
        return asyncio.run_coroutine_threadsafe(running, app.sandbox.loop).result()

    def attempt(args: list[Any], kwargs: dict[str, Any]) -> Any:
        _tidy(app)
        try:
            run = _TaskRun(app.tasks[type], app.blocking.get(_context().id))
            run.begin()
            try:
                value = run.task.func(*run.leading(), *args, **kwargs)
                return run.succeed(value)
            except BaseException as problem:
                run.fail(problem)
                raise
        finally:
            _tidy(app)

    async def acall(args: list[Any], kwargs: dict[str, Any], priority: int = 0) -> Any:
        async with _thread_for(app):
            await sync_to_async(_tidy)(app)
            try:
                run = _TaskRun(app.tasks[type], await app.get(_context().id))
                await sync_to_async(run.begin)()
                try:
                    value = await run.task.func(*run.leading(), *args, **kwargs)
                    return await sync_to_async(run.succeed)(value)
                except Exception as problem:
                    await sync_to_async(run.fail)(problem)
                    raise
            finally:
                await sync_to_async(_tidy)(app)

    return acall if inspect.iscoroutinefunction(task.func) else call


async def on_test_thread(app: "TasksApplication", function: Callable[[], T]) -> T:
    """Call a function on the thread of the test that has this application in a sandbox."""
    if app.sandbox is not None and app.sandbox.caller.waits:
        return await asyncio.wrap_future(app.sandbox.caller.submit(function))
    return await sync_to_async(function)()


@asynccontextmanager
async def _thread_for(app: "TasksApplication") -> AsyncIterator[None]:
    """Give the block a thread for `sync_to_async`: one of its own, or in a sandbox that of the test."""
    if app.sandbox is not None and not app.sandbox.caller.waits:
        yield  # an async test, whose thread `sync_to_async` knows
        return
    async with ThreadSensitiveContext() as context:
        if app.sandbox is not None:
            SyncToAsync.context_to_thread_executor[context] = app.sandbox.caller
        yield


def _tidy(app: "TasksApplication") -> None:
    """Close old and broken connections. In a sandbox leave those of the test alone, and store what its tasks enqueued."""
    if app.sandbox is None:
        close_old_connections()
    else:
        app.store_waiting()


def _context() -> Context:
    run = current_run()
    assert run is not None, "a worker calls this"
    return run


class _TaskRun:
    """One attempt of a task, and its result as signals and the context of the task show it."""

    def __init__(self, task: AnyTask, job: Job) -> None:
        self.task, self._context = task, _context()
        self._result: AnyResult = result_of(job, task)

    def leading(self) -> list[Any]:
        """Return the arguments that come before those of the caller."""
        return [TaskContext(task_result=self._result)] if self.task.takes_context else []

    def begin(self) -> None:
        self._send(task_started)

    def succeed(self, value: Any) -> Any:
        """Return the value as JSON. A receiver of the signal that fails does not fail the task."""
        stored = normalize_json(value)
        self._finish(TaskResultStatus.SUCCESSFUL, stored)
        return stored

    def fail(self, problem: BaseException) -> None:
        """Send that the task has failed, if no attempt is left."""
        self._result.errors.append(_error(problem))
        if self._is_last(problem):
            self._finish(TaskResultStatus.FAILED)

    def _is_last(self, problem: BaseException) -> bool:
        if isinstance(problem, Snooze):
            return False
        state = self._context.job.retry_state
        return isinstance(problem, Fail | Cancel) or state.attempt > state.max_retries

    def _finish(self, status: TaskResultStatus, value: Any = None) -> None:
        changes = {"status": status, "finished_at": in_django(timezone.now()), "_return_value": value}
        for name, changed in changes.items():
            object.__setattr__(self._result, name, changed)
        self._send(task_finished)

    def _send(self, signal: Any) -> None:
        from .backend import DemoraBackend

        signal.send_robust(sender=DemoraBackend, task_result=self._result)


def _error(problem: BaseException) -> TaskError:
    import traceback

    kind = type(problem)
    path = f"{kind.__module__}.{kind.__qualname__}"
    return TaskError(exception_class_path=path, traceback="".join(traceback.format_exception(problem)))
