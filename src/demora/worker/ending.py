"""Why a run is ended from outside."""

from enum import Enum


class Ending(Enum):
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"
