"""The options of the engines, and the parameters of database URLs. Imports no driver."""

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import unquote_plus

import msgspec

from ..core.dsn import ADVICE, check_hosts, is_port, nth, read
from ..errors import BadSetting

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
# Parameters of a PostgreSQL URL that the driver or the server understands.
FOLLOWED = frozenset(
    {"host", "port", "dbname", "database", "user", "password", "passfile", "service", "target_session_attrs"}
    | {"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcrl", "sslnegotiation"}
    | {"ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "application_name", "options"}
)
# Parameters of libpq that the driver does not know, with the values that can be dropped without harm; None stands for any
# value. A URL that requires channel binding or GSS encryption is refused, since the driver supports neither.
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
    """The URL of a PostgreSQL database without the parameters that the driver does not know, which it would send to the
    server as settings. Raises `BadSetting` for a part that the driver cannot read or support."""
    dsn, kept = read(url, setting), []
    for number, (name, value) in enumerate(dsn.parameters, 1):
        if _is_followed(name, unquote_plus(value), number, setting):
            kept.append((name, value))
    return msgspec.structs.replace(dsn, parameters=tuple(kept)).url()


def _is_followed(name: str, value: str, number: int, setting: str) -> bool:
    if name in FOLLOWED:
        _check_value(name, value, setting)
        return True
    if name not in IGNORED:
        server = "a setting of the server is written options=-c%20name%3Dvalue"
        raise BadSetting(setting, f"{nth(number)} after its question mark is unknown: remove it; {server}; {ADVICE}")
    harmless = IGNORED[name]
    if harmless is not None and value not in harmless:
        raise BadSetting(setting, f"the driver does not support this value of {name}; remove it if you can do without")
    return False


def _check_value(name: str, value: str, setting: str) -> None:
    """Refuse a value that the driver would refuse with an error that repeats it."""
    if name == "host" and not value.startswith("/"):
        check_hosts(value, setting)
    if name == "port" and not all(map(is_port, value.split(","))):
        raise BadSetting(setting, "its parameter port must be a number from 1 to 65535")
    if name == "sslmode" and value not in SSL_MODES:
        raise BadSetting(setting, f"its parameter sslmode must be one of {', '.join(SSL_MODES)}")


class PostgresOptions(msgspec.Struct, frozen=True):
    """How to use a PostgreSQL database.

    `pooler` says that clients connect through a pooler in transaction mode: then the engine sets nothing in a session, and
    listens on `listen_url` if there is one. Without LISTEN, waiters look every 250 ms.
    """

    schema: str = "demora"
    connections: int = 8
    timeout: timedelta = timedelta(seconds=30)
    pooler: bool = False
    listen_url: str | None = None
    notify: bool = True

    def checked(self) -> "PostgresOptions":
        """These options; raises `BadSetting` for the first one that is invalid."""
        for problem in self.broken_rules():
            raise problem
        return self

    def broken_rules(self) -> Iterator[BadSetting]:
        """The errors in these options, each under the name of its setting."""
        if not _SCHEMA.fullmatch(self.schema):
            yield BadSetting("database_schema", "must be 1 to 40 lowercase letters, digits and _, with no digit first")
        if not 1 <= self.connections <= 1000:
            yield BadSetting("database_connections", "must be from 1 to 1000")
        if not timedelta(seconds=1) <= self.timeout <= timedelta(hours=1):
            yield BadSetting("database_timeout", "must be from 1s to 1h")

    @property
    def listens(self) -> bool:
        return self.notify and (not self.pooler or self.listen_url is not None)
