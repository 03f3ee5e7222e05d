"""How the address of a Redis or Valkey server is written. This module imports no driver, so that settings can be checked
without one."""

import re

import msgspec

from ..core.dsn import ADVICE, Dsn, nth, read, scheme_of
from ..errors import BadSetting

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
REDIS_FORMS = "write redis://host:6379/0, rediss:// for TLS, valkey:// or valkeys://, or unix:///path/to/socket"
PARAMETERS = frozenset(
    {"db", "username", "password", "client_name", "protocol", "timeout", "socket_timeout", "socket_connect_timeout"}
    | {"socket_keepalive", "retry_on_timeout", "max_connections", "health_check_interval"}
)


def redis_dsn(url: str, setting: str = "redis_url") -> Dsn:
    """Return the parts of the address of a Redis or Valkey server, under a scheme that the driver knows.

    `BadSetting` says which part is wrong and repeats nothing of the address.
    """
    if scheme_of(url) not in SCHEMES:
        raise BadSetting(setting, f"is not a Redis or Valkey URL; {REDIS_FORMS}")
    dsn = read(url, setting)
    if dsn.scheme == "unix":
        if dsn.hosts or not dsn.path.strip("/"):
            raise BadSetting(setting, f"names no socket; {REDIS_FORMS}")
    elif not dsn.hosts or "," in dsn.hosts:
        raise BadSetting(setting, f"does not name one host; {REDIS_FORMS}")
    elif not re.fullmatch(r"/?|/[0-9]{1,5}", dsn.path):
        raise BadSetting(setting, f"the database after the host is not a number; {ADVICE}")
    for number, (name, _) in enumerate(dsn.parameters, 1):
        if name not in PARAMETERS and not re.fullmatch(r"ssl_[a-z_]{1,40}", name):
            raise BadSetting(setting, f"{nth(number)} after its question mark is unknown; {ADVICE}")
    return msgspec.structs.replace(dsn, scheme=SCHEMES[dsn.scheme])
