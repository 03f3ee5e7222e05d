"""The command `demora` itself: the options of every command, and how errors become one line and an exit code."""

import getpass
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

import click
from click.core import ParameterSource

from .. import __version__
from ..errors import BadSetting, CannotListen, DemoraError, Invalid, did_you_mean
from .output import plain

# The commands in the order of the help, each with the module that has it.
COMMANDS = {
    **dict.fromkeys(("serve", "worker", "scheduler"), "running"),
    **dict.fromkeys(("enqueue", "jobs", "job", "why", "dead-letters"), "jobs"),
    **dict.fromkeys(("queues", "queue", "pace"), "queues"),
    **dict.fromkeys(("schedules", "schedule"), "schedules"),
    "workers": "jobs",
    "stats": "queues",
    **dict.fromkeys(("events", "cancel", "retry", "reschedule", "delete"), "jobs"),
    **dict.fromkeys(("pause", "resume"), "queues"),
    "doctor": "doctor",
    **dict.fromkeys(("purge", "rebuild", "recover"), "housekeeping"),
    "keys": "keys",
    "webhooks": "webhooks",
    "migrate": "running",
    "verify": "housekeeping",
    "new": "new",
    "completion": "options",
}
INTERRUPTED = 130
_DATABASE_URL, _APP = "demora.database_url", "demora.app"


class Program(NamedTuple):
    """How to start demora again, and the words that were typed behind that. A framework whose command line contains demora's
    gives its own."""

    start: Sequence[str]
    words: Sequence[str]


def program() -> Program:
    """Return how the running command was started."""
    given = click.get_current_context().find_object(Program)
    return given or Program([sys.executable, "-m", "demora"], sys.argv[1:])


class Failure(click.ClickException):
    """The command failed: prints `error: …` on stderr and exits with code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {plain(self.message)}", err=True)


class Family(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed. A usage error about a misspelt one names the most similar."""
        known = self.list_commands(ctx)
        if args[0] not in known and (hint := did_you_mean(args[0], known)):
            ctx.fail(f"there is no command {plain(args[0])!r}{hint}")
        return super().resolve_command(ctx, args)


class Root(Family):
    """The top-level group. It turns a `DemoraError` into a `Failure`, and exits with 130 on Ctrl-C.

    It imports the module of a command when that command is first asked for.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            family = importlib.import_module(f".{COMMANDS[cmd_name]}", __package__)
            self.add_command(getattr(family, cmd_name.replace("-", "_")))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DemoraError as problem:
            raise Failure(str(problem)) from problem
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class DemoraCommand(click.Command):
    """A command that also takes the options of `demora` itself, so they can stand before or after its name.

    A bad value on the command line is a usage error, even if the client or the settings detect it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CannotListen:
            raise
        except Invalid as problem:
            raise _mistyped(ctx, problem.field, problem.reason) or problem from None
        except BadSetting as problem:
            raise _mistyped(ctx, problem.name, problem.reason) or problem from None


def verb(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command of this name."""
    return click.command(name, cls=DemoraCommand)


def group(name: str) -> Callable[[Callable[..., None]], click.Group]:
    """Make a function a group of commands, such as `demora keys`."""
    return click.group(name, cls=Family, params=shared_options())


def asked_database_url() -> str | None:
    """Return the value of `--database-url`, or None if the settings decide."""
    url: str | None = click.get_current_context().meta.get(_DATABASE_URL)
    return url


def asked_app() -> str | None:
    """Return the value of `--app`, or None if the settings decide."""
    spec: str | None = click.get_current_context().meta.get(_APP)
    return spec


def who() -> str:
    """Return the user who runs this command, to be recorded with a change: `cli:alice`."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        raise Failure("cannot find out your user name, which is recorded with this change; set USER") from None


def _mistyped(ctx: click.Context | None, field: str, reason: str) -> click.BadParameter | None:
    """Return a usage error that names the option or argument that was typed.

    Returns None if the value was not typed: then a setting is wrong. A payload is data, so it is never a usage error.
    """
    name = re.split(r"\W", field)[0]
    while ctx is not None and name != "payload":
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            [param] = [param for param in ctx.command.params if param.name == name]
            typed = max(param.opts, key=len) if isinstance(param, click.Option) else name.upper()
            return click.BadParameter(plain(reason), ctx, param_hint=f"'{typed}'")
        ctx = ctx.parent
    return None


def shared_options() -> list[click.Parameter]:
    """Return the options that every command takes, before or after its name."""
    return [
        click.Option(
            ["--app"],
            metavar="MODULE:APP",
            expose_value=False,
            callback=_remember(_APP),
            help="The application: its handlers and its database. Default: app in demora.toml, or the built-in handlers.",
        ),
        click.Option(
            ["--database-url"],
            metavar="URL",
            expose_value=False,
            callback=_remember(_DATABASE_URL),
            help="The database, for example sqlite:///demora.db. Overrides --app, DEMORA_DATABASE_URL and demora.toml.",
        ),
    ]


def _remember(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.meta[key] = value

    return remember


@click.group(cls=Root, params=shared_options())
@click.version_option(__version__, prog_name="demora", message="%(prog)s %(version)s")
def root() -> None:
    """Run jobs later, on time, without disturbing real-time work."""
