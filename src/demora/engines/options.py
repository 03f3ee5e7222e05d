"""What can be set of the engines. Imports no driver."""

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import unquote_plus

import msgspec

from ..errors import BadSetting
from ..line.address import REDIS_FORMS, is_redis_url

__all__ = ["FOLLOWED", "IGNORED", "REDIS_FORMS", "PostgresOptions", "driver_url", "is_redis_url"]
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# Parameters of a PostgreSQL URL that the driver follows, or the server.
FOLLOWED = frozenset(
    {"host", "port", "dbname", "database", "user", "password", "passfile", "service", "target_session_attrs"}
    | {"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"}
    | {"ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "application_name", "options"}
)
# Those of libpq that mean nothing to the driver, with the values that nobody misses: None for any. The driver can neither
# bind SCRAM to the channel nor encrypt with GSS, so whoever requires that is refused.
IGNORED: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")),
    **dict.fromkeys(("tcp_user_timeout", "fallback_application_name", "client_encoding", "load_balance_hosts")),
    **dict.fromkeys(("channel_binding", "gssencmode"), frozenset({"prefer", "disable"})),
    **dict.fromkeys(("sslcompression", "gssdelegation"), frozenset({"0"})),
    "sslsni": frozenset({"1"}),
    "sslcertmode": frozenset({"allow"}),
    **dict.fromkeys(("hostaddr", "require_auth", "requirepeer", "sslcrldir", "replication"), frozenset()),
}
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def driver_url(url: str, setting: str = "database_url") -> str:
    """The URL of a PostgreSQL database without the parameters that mean nothing to the driver, which would take them for
    settings of the server. `BadSetting` names one that is unknown, or that asks for what the driver cannot do."""
    start, mark, query = url.partition("?")
    kept = [part for part in query.split("&") if _is_followed(part, setting)]
    return start + mark + "&".join(kept) if kept else start


def _is_followed(part: str, setting: str) -> bool:
    name, _, value = map(unquote_plus, part.partition("="))
    if not part or name in FOLLOWED:
        return bool(part)
    if name not in IGNORED:
        raise BadSetting(setting, _unknown(name))
    harmless = IGNORED[name]
    if harmless is not None and value not in harmless:
        raise BadSetting(setting, f"{name} asks for what the driver cannot do; take it out, if you can do without")
    return False


def _unknown(name: str) -> str:
    if not _PARAMETER.fullmatch(name):  # it may be the rest of a password, which is not to be repeated
        return "no parameter follows its question mark; one in a password is written %3F"
    return f"unknown parameter {name}: take it out; a setting of the server is written options=-c%20name%3Dvalue"


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
