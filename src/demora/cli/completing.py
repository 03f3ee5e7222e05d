"""`demora completion`: the script that lets a shell complete commands, options and the names of queues."""

import asyncio

import click
from click.shell_completion import ShellComplete, get_completion_class

from .opening import existing
from .root import root, verb

SHELLS = ("bash", "zsh", "fish")
_PATIENCE = 1.0  # seconds that a database has to name its queues


@verb("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete `demora`: bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(ShellComplete.source(kind(root, {}, "demora", "_DEMORA_COMPLETE")))


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The queues that begin so. None where there is no database or it does not answer: a shell shows no errors."""
    try:
        with ctx.scope(cleanup=False):
            names = asyncio.run(asyncio.wait_for(_queues(), _PATIENCE))
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _queues() -> list[str]:
    async with existing() as client:
        return [queue.name for queue in await client.queues()]
