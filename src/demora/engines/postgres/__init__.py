"""The set-up for many machines: jobs in PostgreSQL."""

from .engine import PostgresStore
from .options import PostgresOptions

__all__ = ["PostgresOptions", "PostgresStore"]
