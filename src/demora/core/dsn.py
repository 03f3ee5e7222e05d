"""URLs of databases and of Redis. demora reads them itself, because a driver that cannot read a URL repeats parts of it in
its error, and these may be parts of the password.

An error says which part is wrong. It shows no part of the URL except the scheme.
"""

import re
from urllib.parse import quote, unquote

import msgspec

from ..errors import BadSetting

ADVICE = "in a user name or password write / as %2F, ? as %3F, # as %23, @ as %40, : as %3A and % as %25"
SECRET = ("password", "sslpassword", "ssl_password")  # parameters that are never shown
SHOWN = ("host", "port", "dbname", "database", "user", "sslmode", "application_name", "target_session_attrs", "db")

_PLAIN = re.compile(r"[\w.-]*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,19}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.~%-]*)(?::(.*))?", re.DOTALL)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Dsn(msgspec.Struct, frozen=True):
    """A URL in its parts. User and password are decoded, the other parts are unchanged."""

    scheme: str
    user: str | None
    password: str | None
    hosts: str
    path: str
    parameters: tuple[tuple[str, str], ...]

    def url(self) -> str:
        """Return the URL with user and password encoded, so that every driver reads it in the same way."""
        return self._written(quote(self.password or "", safe=""), self.parameters)

    def shown(self) -> str:
        """Return the URL without secrets. It shows only parameters that are known to hold none. It shows a plain user name,
        except that of a Redis without a password, since some people write the password there."""
        kept = tuple((name, value if name in SHOWN else "…") for name, value in self.parameters if name in SHOWN + SECRET)
        named = _PLAIN.fullmatch(self.user or "") and (self.password is not None or self.scheme.startswith("postgres"))
        return self._written("…", kept, user=self.user if named else "…" if self.user else "")

    def _written(self, password: str, parameters: tuple[tuple[str, str], ...], user: str | None = None) -> str:
        user = quote(self.user or "", safe="") if user is None else user
        secret = "" if self.password is None else f":{password}"
        at = "" if self.user is None else "@"
        query = "&".join(f"{name}={value}" for name, value in parameters)
        return f"{self.scheme}://{user}{secret}{at}{self.hosts}{self.path}{'?' if query else ''}{query}"


def read(url: str, setting: str) -> Dsn:
    """Return the parts of a URL. `BadSetting` says which of them is wrong."""
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise BadSetting(setting, "does not begin with a scheme such as postgresql:// or redis://")
    if not rest.isprintable() or " " in rest:
        raise BadSetting(setting, "contains a blank or a character that does not print; percent-encode it")
    if "#" in rest:
        raise BadSetting(setting, f"contains a #, which ends a URL; {ADVICE}")
    if _BARE_PERCENT.search(rest):
        raise BadSetting(setting, f"contains a % that no two hexadecimal digits follow; {ADVICE}")
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    if "@" in path:
        raise BadSetting(setting, f"contains an @ behind the host; {ADVICE}")
    account, at, hosts = authority.rpartition("@")
    check_hosts(hosts, setting)
    user, colon, password = account.partition(":")
    return Dsn(
        scheme=scheme,
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        hosts=hosts,
        path=slash + path,
        parameters=tuple(_parameter(part, n, setting) for n, part in enumerate(query.split("&"), 1) if part),
    )


def without_secrets(url: str) -> str:
    """Return the URL without secrets; only the scheme if it cannot be read."""
    scheme, separator, _ = url.partition("://")
    if scheme == "sqlite" and separator:
        return url
    try:
        return read(url, "").shown()
    except BadSetting:
        return f"{scheme}://…" if separator and _SCHEME.fullmatch(scheme) else "…"


def scheme_of(url: str) -> str | None:
    """Return the scheme, None if there is none that may be shown."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator and _SCHEME.fullmatch(scheme) else None


def check_hosts(hosts: str, setting: str) -> None:
    """Refuse hosts, joined by commas, if one of them is not a host or has an invalid port."""
    for one in hosts.split(","):
        found = _HOST.fullmatch(one)
        if found is None:
            raise BadSetting(setting, f"its host is not a name or an address; {ADVICE}")
        if found[2] is not None and not is_port(found[2]):
            raise BadSetting(setting, f"its port is not a number from 1 to 65535; {ADVICE}")


def is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535


def nth(number: int) -> str:
    """Return how an error names a parameter by its position, since its text may be a part of a password."""
    return {1: "the first", 2: "the second", 3: "the third"}.get(number, f"number {number} of the") + (
        " parameter" if number <= 3 else " parameters"
    )


def _parameter(part: str, number: int, setting: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise BadSetting(setting, f"{nth(number)} after its question mark has no =; {ADVICE}")
    return unquote(name), value
