"""Named crash points: one in every gap between two durable effects, so that tests can end a process exactly there.

`DEMORA_CRASH=name:n` makes the process kill itself, as kill -9 would, when it reaches that point for the n-th time. A
simulation arms the points with a function of its own. Otherwise a point does nothing.
"""

import os
import signal
from collections.abc import Callable

POINTS = frozenset(
    {
        "batch.applied",  # written, not committed
        "batch.committed",  # committed; waiters not notified, callers not answered
        "batch.notified",  # waiters notified, callers not answered
        "client.added",  # stored, not yet returned to the application
        "worker.claimed",  # leased, not started
        "worker.lapsed",  # a lapsed lease found, not settled
        "worker.ran",  # the handler has ended, the outcome is not recorded
        "worker.settled",  # recorded, the worker has no answer yet
        "worker.renewed",  # renewed, the worker has no answer yet
        "worker.stopping",  # stopping, no job handed back yet
        "line.recorded",  # in the database, not yet in the line
        "line.updated",  # in the line too, the caller not answered
        "line.taken",  # handed out by the line, not claimed in the database
        "line.claimed",  # claimed in the database, not yet marked in the line
        "line.bumped",  # a new epoch in the database, nothing in the line for it
        "line.filling",  # a part of the waiting jobs is in the line
        "line.sweeping",  # moved jobs are in the line, the database still lists them as moved
        "schema.migrated",  # one schema file, or one block of it, applied, the next one not
    }
)


def at(name: str) -> None:
    """Pass a crash point."""
    if _armed is not None:
        _armed(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of each crash point that the process passes; None disarms the points."""
    global _armed
    _armed = hook


def _from_environment(request: str) -> Callable[[str], None]:
    name, _, count = request.partition(":")
    if name not in POINTS:
        raise SystemExit(f"DEMORA_CRASH: {name!r} is not a crash point; choose one of {', '.join(sorted(POINTS))}")
    left = int(count or 1)

    def hook(passed: str) -> None:
        nonlocal left
        if passed == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


_armed: Callable[[str], None] | None = None
if os.environ.get("DEMORA_CRASH"):
    arm(_from_environment(os.environ["DEMORA_CRASH"]))
