"""How the address of a Redis or Valkey server is written. This module imports no driver, so that settings can be checked
without one."""

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
REDIS_FORMS = "write redis://host:6379/0, rediss:// for TLS, valkey:// or valkeys://, or unix:///path/to/socket"


def is_redis_url(url: str) -> bool:
    """Return whether a text has the form of the address of a Redis or Valkey server."""
    scheme, separator, rest = url.partition("://")
    return scheme in SCHEMES and bool(separator and rest)
