"""The Redis line: it says quickly which job is next, and the SQL store decides.

`LinedStore` is a store on top of an SQL store and a line. Every verb writes to SQL first and to the line second, so the line
can be lost at any moment: the maintainer fills it again from the rows, and meanwhile the SQL store hands out the jobs.
Without this folder demora is correct and slower. Nothing in it imports the Redis driver except `redis/`.
"""

from .filling import HORIZON
from .store import LinedStore, SqlStore

__all__ = ["HORIZON", "LinedStore", "SqlStore"]
