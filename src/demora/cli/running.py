"""Commands that run: the service, a worker, and the migration that both make by themselves."""

from datetime import timedelta

import click

from ..app import Demora
from . import logs, processes
from .banner import banner, without_password
from .opening import chosen_app, opened
from .options import QUEUES, SPAN, app_option, asynchronous, concurrency
from .root import verb


@verb("serve")
@click.option("--host", metavar="HOST", help="The address to listen on.")
@click.option("--port", type=int, metavar="PORT", help="The port to listen on; 0 picks a free one.")
@app_option
@click.option("--no-worker", is_flag=True, help="Only answer; run no jobs.")
@concurrency
def serve(host: str | None, port: int | None, spec: str | None, no_worker: bool, concurrency: int | None) -> None:
    """Serve HTTP and run jobs, in one process. Makes the database if there is none."""
    from ..service import serve

    logs.to_stderr()
    app = chosen_app(spec, host=host, port=port, concurrency=concurrency)
    settings = app.settings

    def started(address: str) -> None:
        click.echo(banner(address, settings.database_url, in_memory=app.in_memory()))

    processes.run(serve(app, settings, with_worker=not no_worker, concurrency=concurrency, started=started))


@verb("worker")
@app_option
@click.option("--queues", type=QUEUES, metavar="A,B", help="Serve only these queues; without it all, also later ones.")
@concurrency
@click.option("--lease", type=SPAN, help="How long others wait before they take over what a dead worker held.")
def worker(spec: str | None, queues: tuple[str, ...] | None, concurrency: int | None, lease: timedelta | None) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one ends at once. Makes the database if there is none."""
    logs.to_stderr()
    app = chosen_app(spec, concurrency=concurrency, lease=lease)
    processes.run(_work(app, queues))


@verb("migrate")
@asynchronous
async def migrate() -> None:
    """Make the database or bring it up to date. Says which version its schema has."""
    app = chosen_app(None)
    url = without_password(app.settings.database_url)
    before = await app.schema_version()
    async with opened(app):
        click.echo(_migrated(url, before, await app.schema_version()))


async def _work(app: Demora, queues: tuple[str, ...] | None) -> int:
    from ..stopping import stopping_on_signals
    from ..worker import Worker

    async with app:
        worker = Worker(app, queues=queues)
        with stopping_on_signals(worker.stop):
            return await worker.run()


def _migrated(url: str, before: int | None, now: int | None) -> str:
    if before == now:
        return f"{url} has schema {now} already"
    return f"{url} has schema {now} now" + ("" if before is None else f"; it had {before}")
