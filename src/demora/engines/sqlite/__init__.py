"""The embedded set-up: jobs in one SQLite file."""

from .engine import SqliteStore

__all__ = ["SqliteStore"]
