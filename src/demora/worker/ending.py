"""Why a run is ended from outside, and what it may still do then."""

from enum import Enum


class Ending(Enum):
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


GRACE = {Ending.CANCEL: 2.0, Ending.STOP: 0.25}  # seconds


def grace(ending: Ending | None) -> float:
    """The seconds that a run in a thread or a process of its own has to end by itself after it was told to."""
    return 0.0 if ending is None else GRACE.get(ending, 0.0)


def stands(ending: Ending | None, *, succeeded: bool) -> bool:
    """Whether what a run came to within that time counts."""
    return ending is Ending.CANCEL or (ending is Ending.STOP and succeeded)
