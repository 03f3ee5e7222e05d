"""The proof: histories of calls, runs and writes, and the checker that compares them with the promises."""

from .checker import check
from .findings import RULES, Bounds, Findings, Violation
from .history import ClientEvent, HandlerEvent, HistoryEvent, Recorder, SqlEvent, WorldEvent, read, write

__all__ = [
    "RULES",
    "Bounds",
    "ClientEvent",
    "Findings",
    "HandlerEvent",
    "HistoryEvent",
    "Recorder",
    "SqlEvent",
    "Violation",
    "WorldEvent",
    "check",
    "read",
    "write",
]
