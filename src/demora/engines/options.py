"""What can be set of the engines. Imports no driver."""

import re
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from ..errors import BadSetting

REDIS_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
REDIS_FORMS = "write redis://host:6379/0, rediss:// for TLS, valkey:// or valkeys://, or unix:///path/to/socket"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def is_redis_url(url: str) -> bool:
    """Whether it looks like the address of a Redis or Valkey."""
    scheme, separator, rest = url.partition("://")
    return scheme in REDIS_SCHEMES and bool(separator and rest)


class PostgresOptions(msgspec.Struct, frozen=True):
    """How to use a PostgreSQL database.

    `pooler` says that a pooler in transaction mode stands before it: then nothing is asked of a session, and LISTEN goes
    over `listen_url` if there is one. Without LISTEN sleepers look every 250 ms.
    """

    schema: str = "demora"
    connections: int = 8
    timeout: timedelta = timedelta(seconds=30)
    pooler: bool = False
    listen_url: str | None = None
    notify: bool = True

    def checked(self) -> "PostgresOptions":
        """These options, if they can be used."""
        for problem in self.broken_rules():
            raise problem
        return self

    def broken_rules(self) -> Iterator[BadSetting]:
        """What is wrong with them, each under the name of its setting."""
        if not _SCHEMA.fullmatch(self.schema):
            yield BadSetting("database_schema", "must be a name of at most 40 small letters, digits and _, no digit first")
        if not 1 <= self.connections <= 1000:
            yield BadSetting("database_connections", "must be from 1 to 1000")
        if not timedelta(seconds=1) <= self.timeout <= timedelta(hours=1):
            yield BadSetting("database_timeout", "must be from 1s to 1h")

    @property
    def listens(self) -> bool:
        return self.notify and (not self.pooler or self.listen_url is not None)
