"""The command line: one file per family of commands, all of them speaking through the client."""

from .acting import cancel, delete, pause, reschedule, resume, retry
from .completing import completion
from .doctoring import doctor
from .enqueueing import enqueue
from .keys import keys
from .looking import dead_letters, job, jobs, queues, workers
from .pacing import pace, why
from .queueing import queue
from .root import root
from .running import migrate, scheduler, serve, worker
from .tidying import purge, rebuild, recover
from .verifying import verify
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
