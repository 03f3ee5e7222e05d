"""demora in Flask: handlers run in an application context, and `flask demora …` has every command.

jobs = FlaskDemora()

@jobs.job("mail.send")
def send(to: str) -> None:
    current_app.logger.info(to)

def create_app() -> Flask:
    app = Flask(__name__)
    jobs.init_app(app)
    return app
"""

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo

from ..app import Demora
from ..blocking import Blocking
from ..core.job import Job
from ..core.request import EnqueueOptions
from ..errors import BadHandler
from ..handlers.job_function import AnyJobFunction, JobFunction, Register
from ..handlers.registry import Handler, HandlerOptions, Hook, Middleware, defaults
from .cli_program import run_root

F = TypeVar("F")
EXTENSION = "demora"

chosen: Demora | None = None  # the jobs that a command of `flask demora` is about


class FlaskDemora:
    """Handlers and schedules for the applications of Flask that are given to `init_app`.

    Each application has jobs of its own, in the database that its config names as `DEMORA_DATABASE_URL`, or otherwise in
    that of the settings. A handler runs in the context of the application whose job it is. The context is pushed and popped
    in the thread of the handler. Calls are about the jobs of `current_app`, or of the only application without a context.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._declared: list[Callable[[Flask, Demora], None]] = []
        self._apps: weakref.WeakSet[Flask] = weakref.WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Give an application its jobs, and the command `flask demora`. Opens nothing."""
        if EXTENSION in app.extensions:
            raise ValueError("this application has its jobs already")
        config = app.config
        demora = Demora(config.get("DEMORA_DATABASE_URL"), config.get("DEMORA_REDIS_URL"), name=app.import_name)
        for declare in self._declared:
            declare(app, demora)
        app.extensions[EXTENSION] = demora
        self._apps.add(app)
        app.cli.add_command(_command)

    def of(self, app: Flask | None = None) -> Demora:
        """Return the jobs of an application, by default of the current one."""
        app = self._current() if app is None else app
        if app not in self._apps:
            raise LookupError(f"the application {app.name!r} has no jobs here: call init_app with it")
        demora: Demora = app.extensions[EXTENSION]
        return demora

    def _current(self) -> Flask:
        if has_app_context():
            app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
            return app
        if len(self._apps) != 1:
            raise LookupError("which application? Call this in an application context, or name it: jobs.of(app)")
        return next(iter(self._apps))

    # Declarations, for all applications

    def job(self, type: str, **options: Unpack[HandlerOptions]) -> Register:
        """Register a function as the handler of a type; see `Demora.job`. It cannot run in a process of its own."""
        if options.get("process"):
            raise BadHandler(type, "an application context needs this process: leave process out")
        usual = defaults(type, **options)

        def register(function: Callable[..., Any]) -> AnyJobFunction:
            handler = Handler(type, function, usual)
            self._declare(lambda app, demora: demora.registry.register(Handler(type, _in_context(app, function), usual)))
            return JobFunction(self, handler)

        return cast(Register, register)

    def every(self, when: str | timedelta, **values: Any) -> Callable[[F], F]:
        """Enqueue a job of the handler below again and again; see `Demora.every`."""

        def schedule(function: F) -> F:
            def declare(_: Flask, demora: Demora) -> None:
                demora.every(when, **values)(function)

            self._declare(declare)
            return function

        return schedule

    def schedule(self, name: str, type: str, **values: Any) -> None:
        """Define a schedule; see `Demora.schedule`."""
        self._declare(lambda _, demora: demora.schedule(name, type, **values))

    def pace(self, queue: str, **values: Any) -> None:
        """Give a queue a pace; see `Demora.pace`."""
        self._declare(lambda _, demora: demora.pace(queue, **values))

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every run; see `Demora.middleware`."""
        self._declare(lambda _, demora: demora.middlewares.append(function))
        return function

    def on_startup(self, hook: Hook) -> Hook:
        """Call this function when a worker starts."""
        self._declare(lambda _, demora: demora.startup_hooks.append(hook))
        return hook

    def on_shutdown(self, hook: Hook) -> Hook:
        """Call this function when a worker stops."""
        self._declare(lambda _, demora: demora.shutdown_hooks.append(hook))
        return hook

    # Calls, for the current application

    @property
    def blocking(self) -> Blocking:
        """The verbs of the current application's jobs, for views and plain handlers."""
        return self.of().blocking

    async def enqueue(self, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Store one job of the current application, from an async view or handler."""
        return await self.of().enqueue(type, payload, **options)

    def _declare(self, declare: Callable[[Flask, Demora], None]) -> None:
        self._declared.append(declare)
        for app in self._apps:
            declare(app, self.of(app))


def _in_context(app: Flask, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with an application context around it, in the thread or task that calls it."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(**arguments: Any) -> Any:
            with app.app_context():
                return await function(**arguments)

        return acall

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        with app.app_context():
            return function(**arguments)

    return call


@click.command(
    "demora",
    short_help="Run a command of demora.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _command(ctx: click.Context, words: Sequence[str]) -> None:
    global chosen
    chosen = ctx.ensure_object(ScriptInfo).load_app().extensions[EXTENSION]
    run_root([f"--app={__name__}:chosen"], words, name="flask demora")
