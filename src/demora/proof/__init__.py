"""The proof: histories of what was asked, run and recorded, and the checker that holds them to the promises."""

from .checker import check
from .findings import RULES, Bounds, Findings, Violation
from .history import ClientEvent, Event, HandlerEvent, Recorder, SqlEvent, WorldEvent, read, write

__all__ = [
    "RULES",
    "Bounds",
    "ClientEvent",
    "Event",
    "Findings",
    "HandlerEvent",
    "Recorder",
    "SqlEvent",
    "Violation",
    "WorldEvent",
    "check",
    "read",
    "write",
]
