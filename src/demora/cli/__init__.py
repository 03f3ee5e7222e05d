"""The command line: one module for each family of commands. All commands call the client and never a store."""

from .completing import completion
from .doctor import doctor
from .events import events
from .housekeeping import purge, rebuild, recover, verify
from .jobs import cancel, dead_letters, delete, enqueue, job, jobs, reschedule, retry, why, workers
from .keys import keys
from .new import new
from .paces import pace
from .queues import pause, queue, queues, resume, stats
from .root import root
from .running import migrate, scheduler, serve, worker
from .schedules import schedule, schedules
from .webhooks import webhooks

for command in (
    *(serve, worker, scheduler, enqueue),
    *(jobs, job, why, dead_letters, queues, queue, pace, schedules, schedule, workers, stats, events),
    *(cancel, retry, reschedule, delete, pause, resume),
    *(doctor, purge, rebuild, recover, keys, webhooks, migrate, verify, new, completion),
):
    root.add_command(command)


def main() -> None:
    """The entry point `demora`."""
    root(prog_name="demora")


__all__ = ["main", "root"]
