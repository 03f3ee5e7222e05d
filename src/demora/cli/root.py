"""`demora` itself: the options that every command takes, and how trouble is told: one line and an exit code."""

import getpass
import re
from collections.abc import Callable
from typing import IO, Any

import click
from click.core import ParameterSource

from .. import __version__
from ..errors import BadSetting, CannotListen, DemoraError, Invalid
from .output import plain

INTERRUPTED = 130
_DATABASE_URL = "demora.database_url"


class Failure(click.ClickException):
    """What was asked for did not happen: `error: …` on stderr, exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {plain(self.message)}", err=True)


class Family(click.Group):
    """Lists its commands in the order of their adding."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Root(Family):
    """Turns errors into failures. Ctrl-C ends quietly with 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DemoraError as problem:
            raise Failure(str(problem)) from problem
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


class Verb(click.Command):
    """A command that also takes the options of `demora` itself, so that they may stand before or after its name. What was
    typed wrong is a usage error, whoever notices it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_database_option())

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
    return click.command(name, cls=Verb)


def group(name: str) -> Callable[[Callable[..., None]], click.Group]:
    """A family of verbs under one name: `demora keys create`."""
    return click.group(name, cls=Family, params=[_database_option()])


def asked_database_url() -> str | None:
    """What `--database-url` said; None leaves it to the settings."""
    url: str | None = click.get_current_context().meta.get(_DATABASE_URL)
    return url


def who() -> str:
    """Whoever typed this, as it is recorded with what it changes."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        raise Failure("cannot tell who you are, which is recorded with this change; set USER") from None


def _mistyped(ctx: click.Context | None, field: str, reason: str) -> click.BadParameter | None:
    """The usage error for what is wrong with an argument of the client, under the name that was typed. None if it was not
    typed here: then a setting is wrong, or a payload, which is data wherever it comes from."""
    name = re.split(r"\W", field)[0]
    while ctx is not None and name != "payload":
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            [param] = [param for param in ctx.command.params if param.name == name]
            typed = max(param.opts, key=len) if isinstance(param, click.Option) else name.upper()
            return click.BadParameter(plain(reason), ctx, param_hint=f"'{typed}'")
        ctx = ctx.parent
    return None


def _database_option() -> click.Option:
    return click.Option(
        ["--database-url"],
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help="Where the jobs are, for instance sqlite:///demora.db; overrides DEMORA_DATABASE_URL and demora.toml.",
    )


def _remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_DATABASE_URL] = value


@click.group(cls=Root, params=[_database_option()])
@click.version_option(__version__, prog_name="demora", message="%(prog)s %(version)s")
def root() -> None:
    """Run jobs later, on time, and without hurting what runs now."""
