"""Named crash points: every gap between two durable effects, so that tests can end a process exactly there.

`DEMORA_CRASH=name:n` makes the process kill itself, as kill -9 would, when it reaches that point for the n-th time. A
simulation arms the points with a function of its own. Otherwise a point does nothing.
"""

import os
import signal
from collections.abc import Callable

POINTS = frozenset(
    {
        "batch.applied",  # written, not committed
        "batch.committed",  # committed, nobody woken, nobody answered
        "batch.rung",  # sleepers woken, nobody answered
        "client.added",  # stored, not yet told to the application
        "worker.claimed",  # leased, not started
        "worker.lapsed",  # a lapse was seen, not settled
        "worker.ran",  # the handler has ended, nothing is recorded
        "worker.settled",  # recorded, the worker does not know it
        "worker.renewed",  # extended, the worker does not know it
        "worker.stopping",  # told to stop, nothing handed back
        "line.recorded",  # in the database, not yet in the line
        "line.told",  # in the line too, nobody answered
        "line.taken",  # handed out by the line, not claimed in the database
        "line.drawn",  # claimed in the database, the line does not know it
        "line.bumped",  # a new number on record, nothing in the line under it
        "line.filling",  # a part of the waiting jobs is in the line
        "line.sweeping",  # what moved is in the line, that it is is not noted
        "schema.migrated",  # one schema file applied, the next one not
    }
)


def at(name: str) -> None:
    """Pass a crash point."""
    if _armed is not None:
        _armed(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of each point that is passed; None disarms."""
    global _armed
    _armed = hook


def _from_environment(request: str) -> Callable[[str], None]:
    name, _, count = request.partition(":")
    if name not in POINTS:
        raise SystemExit(f"DEMORA_CRASH: {name!r} is no crash point; there are {', '.join(sorted(POINTS))}")
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
