"""`demora` itself: the options that every command takes, and how trouble is told: one line and an exit code."""

import getpass
from collections.abc import Callable
from typing import IO, Any

import click

from .. import __version__
from ..errors import DemoraError
from .text import plain

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
    """A command that also takes the options of `demora` itself, so that they may stand before or after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_database_option())


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
