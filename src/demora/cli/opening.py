"""Opens the application and the database of a command, and runs the commands that stay (serve, worker, scheduler)."""

import asyncio
import gc
import importlib
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NoReturn

import click

from ..app import Demora
from ..client.client import Client
from ..errors import BadSetting
from ..settings import load
from .output import plain, whole_url
from .root import Failure, asked_app, asked_database_url

_NO_DATABASE_YET = "start demora serve, which creates it, or choose another with --database-url or DEMORA_DATABASE_URL"
_IN_MEMORY = (
    "a database in memory would be lost when this command ends; only demora serve, worker and scheduler accept one; "
    "name a file, for example --database-url sqlite:///demora.db"
)


def chosen_app(**given: Any) -> Demora:
    """Return the application that `--app` or the setting `app` names, or one with only the built-in handlers.

    `given` are typed options.
    """
    return _configured(asked_app() or load().app, **given)


def is_app_named() -> bool:
    """Whether `--app` or the setting `app` names an application."""
    return (asked_app() or load().app) is not None


def app_to_look_at() -> Demora:
    """Return the application for a command that needs its database and no handlers. A typed database replaces the setting
    `app`, so that people can look at the jobs of an application that cannot be imported."""
    return _configured(asked_app()) if asked_database_url() is not None else chosen_app()


def _configured(spec: str | None, **given: Any) -> Demora:
    app = Demora() if spec is None else _import_app(spec)
    app.configure(database_url=asked_database_url(), **given)
    return app


@asynccontextmanager
async def opened(app: Demora) -> AsyncIterator[Client]:
    """Open an application for one command and yield its client. Creates or migrates the database if necessary.

    Refuses a database in memory, because no other process could see it.
    """
    refuse_memory(app)
    try:
        yield await app.open()
    finally:
        await app.close()


def refuse_memory(app: Demora) -> None:
    """Refuse a database in memory, for commands that end at once."""
    if app.in_memory():
        raise Failure(_IN_MEMORY)


@asynccontextmanager
async def existing() -> AsyncIterator[Client]:
    """Yield the client for a command that needs an existing database. Fails if there is none, and creates none."""
    app = app_to_look_at()
    if await app.schema_version() is None and not app.in_memory():
        raise Failure(f"there is no database yet at {whole_url(app.settings.database_url)}; {_NO_DATABASE_YET}")
    async with opened(app) as client:
        yield client


def _import_app(spec: str) -> Demora:
    """Import the application with the current folder on the path, as `python -m` does."""
    name, _, attribute = spec.partition(":")
    if not name or not attribute.isidentifier() or name.endswith(".py"):
        raise _bad_app(f"{spec!r} does not name an application; write module:app, for example mymodule:app")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    module = _import(name)
    if not hasattr(module, attribute):
        raise _bad_app(f"module {name} has no {attribute!r}; {_suggestion(name, module)}")
    app = getattr(module, attribute)
    if not isinstance(app, Demora):
        raise _bad_app(f"{spec} is a {type(app).__name__}, not an application; {_suggestion(name, module)}")
    return app


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise _bad_app(f"there is no module {name} in this folder or on the Python path; write module:app") from problem
        raise _broken(name, problem) from problem
    except Exception as problem:
        raise _broken(name, problem) from problem


def _suggestion(name: str, module: Any) -> str:
    found = [attribute for attribute, value in vars(module).items() if isinstance(value, Demora)]
    return f"write {name}:{found[0]}" if found else f"write app = Demora() there and --app {name}:app"


def _bad_app(message: str) -> Exception:
    """Return a usage error, or the error of a setting if the application was not typed."""
    if asked_app() is None:
        return BadSetting("app", message)
    return click.BadParameter(plain(message), param_hint="--app")


def _broken(name: str, problem: Exception) -> Failure:
    """Print the traceback of an application that cannot be imported, for its author, and return the failure."""
    traceback.print_exception(problem.with_traceback(_from_module(problem.__traceback__)))
    return Failure(f"module {name} cannot be imported: {type(problem).__name__}: {problem}")


def _from_module(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the import itself; all of it if it has no others."""
    inner = frames
    while inner is not None and _imports(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner or frames


def _imports(file: str) -> bool:
    return file == __file__ or file == importlib.__file__ or file.startswith("<frozen importlib")


_YOUNG_OBJECTS = 10_000  # new objects between two runs of the garbage collector; Python's default is 700
_THREAD_TIMEOUT = 1.0  # seconds that threads have to end once the event loop has


def run(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a coroutine on uvloop and exit with the code it returns. A thread that hangs delays the exit by one second.

    The garbage collector skips the modules and the application that are loaded by now: looking through all of them again
    would stop every job for 10 ms and more. It also runs less often than usual: each claim makes thousands of objects that
    are freed without it.
    """
    import uvloop

    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(main)
        _exit_soon(code)
    sys.exit(code)


def _exit_soon(code: int) -> None:
    timer = threading.Timer(_THREAD_TIMEOUT, os._exit, [code])
    timer.daemon = True
    timer.start()
