"""Who may come in: only requests for a host that is ours, and no changes on behalf of other web sites.

A page in a browser can reach 127.0.0.1, by its own name once that is bound to this address, or by ours. The first is told
by its Host header, the second by its origin.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ..addresses import in_url, read_address
from ..settings import Settings
from .problems import CrossSite, WrongHost

_ALWAYS = ("localhost", "127.0.0.1", "[::1]")
_HARMLESS = frozenset({"GET", "HEAD"})


class Door:
    """Checks requests before anything else does."""

    def __init__(self, settings: Settings) -> None:
        bound = in_url(read_address(settings.host))  # 0.0.0.0 is no name: browsers take it for this machine
        self._allowed = {name.strip().lower() for name in (*_ALWAYS, bound, *settings.allowed_hosts)}

    def check(self, method: str, headers: Headers) -> None:
        """Let the request in, or raise why not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0].lower()):
            raise WrongHost
        if method not in _HARMLESS and not _same_site(hosts[0], headers):
            raise CrossSite

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            return host in self._allowed
        return host in self._allowed or (name in self._allowed and port.isdecimal())


def _same_site(host: str, headers: Headers) -> bool:
    """Whether this is no browser, or a browser on a page of our own."""
    fetched_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if fetched_from is not None:
        return fetched_from in ("same-origin", "none")
    return origin is None or _netloc(origin) == host.lower()


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
