"""`demora completion`: prints the script with which a shell completes commands, options and queue names."""

import asyncio

import click
from click.shell_completion import ShellComplete, get_completion_class

from .opening import existing
from .root import root, verb

SHELLS = ("bash", "zsh", "fish")
_QUERY_TIMEOUT = 1.0  # seconds in which the database must list its queues


@verb("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(ShellComplete.source(kind(root, {}, "demora", "_DEMORA_COMPLETE")))


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the queue names that start with `incomplete`.

    The list is empty if there is no database or it does not answer: a shell cannot show an error.
    """
    try:
        with ctx.scope(cleanup=False):
            names = asyncio.run(asyncio.wait_for(_queues(), _QUERY_TIMEOUT))
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _queues() -> list[str]:
    async with existing() as client:
        return [queue.name for queue in await client.queues()]
