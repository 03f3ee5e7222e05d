"""The commands that run processes (`serve`, `worker`, `scheduler`), `migrate`, and the log of these processes."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from ..app import Demora
from ..core.dsn import without_secrets
from ..core.spans import say, timestamp
from ..core.workers import QueueShares
from ..errors import DemoraError
from ..handlers.context import stamp_records
from ..runtime.reloading import run_and_reload, take_reloaded
from ..settings import Settings, load, nearest, unknown_variables
from ..system import error_texts, notices
from . import opening
from .opening import app_to_look_at, chosen_app, is_app_named, opened
from .options import QUEUES, SPAN, as_json, asynchronous, concurrency, logged, reload_option
from .output import banner, plain, print_json, whole_url
from .root import Failure, asked_app, asked_database_url, program, verb

ServedQueues = Sequence[str] | Mapping[str, int] | None


@verb("serve")
@click.option("--host", metavar="HOST", help="The address to listen on.")
@click.option("--port", type=int, metavar="PORT", help="The port to listen on; 0 chooses a free port.")
@click.option("--no-worker", is_flag=True, help="Only serve HTTP; run no jobs.")
@click.option("--root-path", metavar="PATH", help="The path below which a reverse proxy serves this, for instance /jobs.")
@concurrency
@reload_option
@logged
def serve(
    host: str | None,
    port: int | None,
    no_worker: bool,
    root_path: str | None,
    concurrency: int | None,
    reload: bool,
    **log: Any,
) -> None:
    """Serve HTTP and run jobs in one process. Creates the database if there is none."""
    from ..runtime.service import serve
    from ..runtime.supervisor import hold_lifeline

    to_stderr(load(**log))
    if reload:
        _reload()
    app = chosen_app(host=host, port=port, root_path=root_path, concurrency=concurrency)
    settings = app.settings
    hold_lifeline(settings.grace)
    take_reloaded()
    _log_missing_app()
    _log_unknown_variables()

    def started(address: str, with_key: bool) -> None:
        click.echo(banner(address, settings, in_memory=app.in_memory(), with_key=with_key))

    opening.run(serve(app, settings, with_worker=not no_worker, concurrency=concurrency, started=started))


@verb("worker")
@click.option(
    "--queues",
    type=QUEUES,
    metavar="A,B",
    help="Serve only these queues (default: all, including new ones). Weights, A=3,B=1, say how often each is served first.",
)
@click.option(
    "--strict", is_flag=True, help="Serve the queues in the given order: one is served only while those before it are empty."
)
@concurrency
@click.option("--url", metavar="URL", help="Run the jobs of this service over HTTP; its API key is in DEMORA_API_KEY.")
@click.option("--lease", type=SPAN, help="How long other workers wait before they take over the jobs of a dead worker.")
@click.option(
    "--processes", "number", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many workers to run."
)
@click.option("--metrics-port", type=int, metavar="PORT", help="Show metrics for Prometheus here; 0 chooses a free port.")
@click.option("--metrics-host", metavar="HOST", help="The address of that port (default: 127.0.0.1).")
@reload_option
@logged
def worker(
    queues: ServedQueues,
    strict: bool,
    concurrency: int | None,
    url: str | None,
    lease: timedelta | None,
    number: int,
    metrics_port: int | None,
    metrics_host: str | None,
    reload: bool,
    **log: Any,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C. A second signal ends it at once. Creates the database if there is none."""
    from ..runtime.supervisor import hold_lifeline, supervise

    to_stderr(load(**log))
    if reload and number > 1:
        raise click.UsageError("--reload restarts one process; leave --processes out")
    if reload:
        _reload()
    app = chosen_app(concurrency=concurrency, lease=lease, metrics_port=metrics_port, metrics_host=metrics_host)
    app.configure(database_url=url)
    if number > 1 and app.settings.metrics_port is not None:
        raise click.UsageError(
            "a metrics port is for one process: leave --processes out, and start each worker with its own port"
        )
    if number == 1:
        if not hold_lifeline(app.settings.grace) or take_reloaded():
            _log_settings(app)
            _log_missing_app()
        opening.run(_work(app, queues, strict))
    if app.in_memory():
        raise Failure("several processes cannot share a database in memory; name a file or a server with --database-url")
    _log_settings(app)
    _log_missing_app()
    opening.run(supervise(_worker_command(queues, strict, concurrency, url, lease, log), number))


@verb("scheduler")
@logged
def scheduler(**log: Any) -> None:
    """Fire schedules (cron) and do the housekeeping. Runs until SIGTERM or Ctrl-C. It adds the jobs of schedules at their
    times, cancels expired jobs, deletes old ones, releases the jobs of paced queues and forgets dead workers. Define
    schedules with `demora schedule add`, or with `@app.every` in code; `demora schedules` lists them.

    `serve` and every worker do it too, and any number of processes can do it at the same time. Run this command if no
    worker runs for long periods. Delayed jobs do not need it: workers start them when they are due.
    """
    to_stderr(load(**log))
    app = chosen_app()
    _log_settings(app)
    opening.run(_housekeep(app))


@verb("migrate")
@as_json
@asynchronous
async def migrate(*, as_json: bool) -> None:
    """Create the database or migrate it to the current schema. Prints the schema version, and its progress on stderr.

    Processes that use the database go on. A command that is interrupted continues where it stopped when it is run again.
    """
    app = app_to_look_at()
    url = without_secrets(app.settings.database_url)
    before = await app.schema_version()
    with schema_progress():
        async with opened(app):
            now = await app.schema_version()
    if as_json:
        print_json({"schema": now, "before": before})
    else:
        click.echo(_migrated(url, before, now))


def _reload() -> NoReturn:
    """Run the typed command without `--reload` in a process of its own, and restart it when a file changes."""
    start, words = program()
    command = [*start, *(word for word in words if word != "--reload")]
    opening.run(run_and_reload(command, Path.cwd()))


def _log_settings(app: Demora) -> None:
    """Log the database and the unknown DEMORA_ variables, once for all processes of a command."""
    line = app.settings.redis_url
    notices.database_used(whole_url(app.settings.database_url), None if line is None else without_secrets(line))
    _log_unknown_variables()


def _log_missing_app() -> None:
    if not is_app_named():
        notices.builtins_only()


def _log_unknown_variables() -> None:
    for name in unknown_variables(os.environ):
        notices.unknown_variable(name, nearest(name))


async def _work(app: Demora, queues: ServedQueues, strict: bool) -> int:
    from ..runtime.measuring import worker_metrics
    from ..runtime.startup import opened_when_there
    from ..runtime.supervisor import REFUSED
    from ..system.stop_signals import stopping_on_signals
    from ..worker import Worker

    with worker_metrics(app.settings) as measured:
        async with opened_when_there(app):
            await _log_new_queues(app, queues or ())
            if measured is not None:
                measured.line_used = (await app.open()).line_used
            worker = Worker(app, queues=queues, strict=strict, measures=measured)
            with stopping_on_signals(worker.stop):
                code = await worker.run()
                return REFUSED if worker.refused else code


async def _log_new_queues(app: Demora, named: Iterable[str]) -> None:
    """Log which of these queues do not exist yet, because a name may be misspelt."""
    with suppress(DemoraError):  # a database that is down, or a key that may only work: the worker deals with both
        known = {queue.name for queue in await (await app.open()).queues()} if named else set()
        for name in named:
            if name not in known:
                notices.queue_new(name)


async def _housekeep(app: Demora) -> int:
    from ..runtime.scheduling import scheduler_of
    from ..runtime.startup import opened_when_there
    from ..system.seams import Seams
    from ..system.stop_signals import stopping_on_signals

    async with opened_when_there(app):
        name = Seams().name()
        async with scheduler_of(app, name) as scheduler:
            with stopping_on_signals(scheduler.stop):
                notices.scheduler_started(name)
                await scheduler.run()
    return 0


def _worker_command(
    queues: ServedQueues,
    strict: bool,
    concurrency: int | None,
    url: str | None,
    lease: timedelta | None,
    log: Mapping[str, str | None],
) -> list[str]:
    """Return the typed command, for one worker."""
    given = {
        "--app": asked_app(),
        "--queues": None if queues is None else str(QueueShares(queues)),
        "--concurrency": concurrency,
        "--url": url,
        "--lease": None if lease is None else say(lease),
        "--database-url": asked_database_url(),
        "--log-format": log["log_format"],
        "--log-level": log["log_level"],
    }
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return [*program().start, "worker", *options, *(["--strict"] if strict else [])]


def _migrated(url: str, before: int | None, now: int | None) -> str:
    if before == now:
        return f"{url} already has schema {now}"
    return f"{url} has schema {now} now" + ("" if before is None else f"; it had {before}")


# The log of a service or worker: text for people, or one JSON object per line for programs

_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


class Lines(logging.Formatter):
    """Formats a record as one line: time, level, job id unless the message has it, message. Control characters are escaped.

    The lines of a traceback follow. With `colour`, warnings and errors are coloured.
    """

    default_msec_format = "%s.%03d"

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colours = _COLOURS if colour else {}

    def format(self, record: logging.LogRecord) -> str:
        job_id, message = _job_id(record), plain(record.getMessage())
        inside = "" if job_id is None or job_id in message else f"[{job_id}] "
        line = f"{self.formatTime(record)} {self._level(record)} {inside}{message}"
        return "\n".join([line, *self._traceback(record)])

    def _level(self, record: logging.LogRecord) -> str:
        name, colour = f"{record.levelname:<7}", self._colours.get(record.levelname)
        return name if colour is None else f"\x1b[{colour}m{name}\x1b[0m"

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        text = error_texts.of_traceback(record.exc_info) if record.exc_info else record.exc_text or ""
        return [plain(line) for line in text.splitlines()]


class Objects(logging.Formatter):
    """Formats a record as one JSON object: time, level, event and message, then the facts. Non-ASCII text is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "message": record.getMessage(),
            "logger": record.name,
        }
        if (job_id := _job_id(record)) is not None:
            said["jobId"] = job_id
        said |= {_camel(name): value for name, value in getattr(record, "facts", {}).items()}
        if record.exc_info:
            said["traceback"] = error_texts.of_traceback(record.exc_info)
        elif record.exc_text:
            said["traceback"] = record.exc_text
        return json.dumps(said, default=str).replace("\x7f", "\\u007f")


def to_stderr(settings: Settings) -> None:
    """Log to stderr from now on, in the format and at the level that the settings name. A terminal shows each completed
    job."""
    stamp_records()
    error_texts.configure(settings.log_errors)
    handler = logging.StreamHandler(sys.stderr)
    notices.show_ends(sys.stderr.isatty())
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(Objects() if settings.log_format == "json" else Lines(colour=colour))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


@contextmanager
def schema_progress() -> Iterator[None]:
    """Show on stderr what a migration does meanwhile, and the warnings that a command without a log shows anyway."""
    log, shown = logging.getLogger("demora"), _SchemaProgress()
    level = log.level
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(shown)


class _SchemaProgress(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or getattr(record, "event", "").startswith("schema."):
            click.echo(plain(record.getMessage()), err=True)


def _job_id(record: logging.LogRecord) -> str | None:
    job_id: str = getattr(record, "job_id", "-")
    return None if job_id == "-" else job_id


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
