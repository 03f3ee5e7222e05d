"""The command line: one file per family of commands, all of them speaking through the client."""

from .completing import completion
from .doctor import doctor
from .housekeeping import purge, rebuild, recover, verify
from .jobs import cancel, dead_letters, delete, enqueue, job, jobs, pause, queues, reschedule, resume, retry, workers
from .keys import keys
from .paces import pace, why
from .queues import queue
from .root import root
from .running import migrate, scheduler, serve, worker
from .webhooks import webhooks

for command in (
    *(serve, worker, scheduler, enqueue),
    *(jobs, job, why, dead_letters, queues, queue, pace, workers),
    *(cancel, retry, reschedule, delete, pause, resume),
    *(doctor, purge, rebuild, recover, keys, webhooks, migrate, verify, completion),
):
    root.add_command(command)


def main() -> None:
    """The entry point `demora`."""
    root(prog_name="demora")


__all__ = ["main", "root"]
