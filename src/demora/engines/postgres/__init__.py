"""The set-up for many machines: jobs in PostgreSQL."""

from ..options import PostgresOptions
from .engine import PostgresStore

__all__ = ["PostgresOptions", "PostgresStore"]
