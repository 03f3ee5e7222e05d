"""The Redis line: it says quickly which job is next, and the SQL store decides.

`LinedStore` is a store on top of an SQL store and a line. Every verb writes to SQL first and to the line second, so the line
can be lost at any moment: the maintainer fills it again from the rows, and meanwhile the SQL store hands out the jobs.
Without a Redis URL nothing here runs. Only `redis/` imports the Redis driver.
"""

from .filling import HORIZON
from .store import LinedStore, SqlStore

__all__ = ["HORIZON", "LinedStore", "SqlStore"]
