"""Decides which requests are allowed: by host and origin (`Door`), and by API key, scope and rate (`Guard`).

A web page of another site can make a browser send requests to 127.0.0.1: under a host name of that site (DNS rebinding), or
under the name of this service. The door recognizes the first by the Host header and the second by the origin.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers

from ..app import Demora
from ..client.api_keys import ApiKeys
from ..core.access import ApiKey, Presented, RateLimiter, RequestRate, Scope, accepts, caller_of, has_secret, present
from ..errors import DemoraError
from ..settings import Settings
from ..system import notices
from ..system.addresses import in_url, read_address
from ..wire.problems import BadKey, CrossSite, NoKey, TooManyFailures, TooManyRequests, WrongHost, WrongScope

_ALWAYS = ("localhost", "127.0.0.1", "[::1]")
_HARMLESS = frozenset({"GET", "HEAD"})
FRESH = 1.0  # seconds that a key is cached: the longest time until a revocation takes effect
KEY_BURST = 2  # seconds' worth of requests that a key may make at once
FAILED_BURST = 10  # the same of failed authentications
MOST_REMEMBERED = 10_000  # keys, and addresses, whose requests are counted


class Door:
    """Checks the host and the origin of every request, before anything else."""

    def __init__(self, settings: Settings) -> None:
        bound = in_url(read_address(settings.host))  # 0.0.0.0 is no name: browsers take it for this machine
        self._allowed = {name.strip().lower() for name in (*_ALWAYS, bound, *settings.allowed_hosts)}

    def check(self, method: str, headers: Headers) -> None:
        """Return if the request is allowed. Raises `WrongHost` or `CrossSite`."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0].lower()):
            raise WrongHost
        check_same_site(method, headers)

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            return host in self._allowed
        return host in self._allowed or (name in self._allowed and port.isdecimal())


def check_same_site(method: str, headers: Headers) -> None:
    """Return unless a page of another site sent a request that could change something. Raises `CrossSite`."""
    if method not in _HARMLESS and not is_same_site(headers, from_a_page=False):
        raise CrossSite


def is_same_site(headers: Headers, *, from_a_page: bool) -> bool:
    """Return whether a page of this service sent the request. Programs and users at the address bar count too, except where
    only a page can rightly send it: a form of the dashboard."""
    fetched_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if fetched_from is not None:
        return fetched_from == "same-origin" or (fetched_from == "none" and not from_a_page)
    if origin is None:
        return not from_a_page
    return _netloc(origin) == headers.get("host", "").lower()


def _netloc(origin: str) -> str | None:
    """Return the host and port of an origin in lower case; None if it is malformed."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def opens_without_keys(settings: Settings) -> bool:
    """Whether the service needs no key while there is none: only other programs on this machine can reach it."""
    return read_address(settings.host).is_loopback


class _Seen(msgspec.Struct, frozen=True):
    """A key as it was read from `keys`, at `now` by the database's clock and `at` by the timer of this process."""

    keys: ApiKeys
    key: ApiKey | None
    now: datetime
    at: float


class Guard:
    """Checks the API key of a request, its scope and its rate. As soon as any key exists, every request needs one; until
    then only if the guard is not `open_without_keys`.

    The guard reads a key from the database at most once a second.
    """

    def __init__(
        self, app: Demora, settings: Settings, *, open_without_keys: bool, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._timer = app, timer
        self._open_without_keys = open_without_keys
        self._open_until = self._closed_until = -math.inf  # of requests without a key
        self._seen: dict[str, _Seen] = {}
        self._looking: asyncio.Future[_Seen | None] | None = None  # the last read for requests without a key
        self._notes: set[asyncio.Task[None]] = set()
        self._usual, self._proxies = settings.key_limits, settings.proxies
        self._requests, self._failures = RateLimiter(MOST_REMEMBERED), RateLimiter(MOST_REMEMBERED)
        self._failure_rate = RequestRate(settings.failed_auth_rate, settings.failed_auth_rate * FAILED_BURST)

    @property
    def is_open(self) -> bool:
        """Whether there was no key, and none was needed, when the database was read within the last second."""
        return self._timer() < self._open_until

    async def admit(self, headers: Headers, scope: Scope | None, peer: str | None = None) -> ApiKey | None:
        """Return the key of a request for an operation of this scope, or None if it needs no key.

        Raises the error that refuses the request. `peer` is the address at the other end of the connection.
        """
        if scope is None or self.is_open:
            return None
        try:
            key = await self._identify(headers)
        except (NoKey, BadKey):
            self._count_failure(headers, peer)
            raise
        if key is None:
            return None
        self.count_request(key)
        if not key.allows(scope):
            raise WrongScope(scope)
        return key

    async def still_admits(self, headers: Headers, scope: Scope) -> bool:
        """Return whether an admitted request would be admitted now. It counts for no rate, and a database that cannot be
        read changes nothing."""
        try:
            key = None if self.is_open else await self._identify(headers)
        except (NoKey, BadKey):
            return False
        except DemoraError:
            return True
        return key is None or key.allows(scope)

    async def _identify(self, headers: Headers) -> ApiKey | None:
        """Return the presented key, or None if no key is needed. Raises `NoKey` or `BadKey`."""
        presented = _presented(headers)
        if presented is None and self._timer() < self._closed_until:
            raise BadKey if "authorization" in headers else NoKey
        seen = self._fresh(presented) or await (self._look_without_key() if presented is None else self._look(presented.id))
        if seen is None:
            return None
        if presented is None:
            raise BadKey if "authorization" in headers else NoKey
        return self._accepted(seen, presented)

    def count_request(self, key: ApiKey) -> None:
        """Count a request of a key. Raises `TooManyRequests` if the key is over its rate."""
        rate = key.limits.over(self._usual).rate or 0
        wait = self._requests.take(key.id, RequestRate(rate, rate * KEY_BURST), self._timer())
        if wait:
            raise TooManyRequests(wait)

    def _count_failure(self, headers: Headers, peer: str | None) -> None:
        forwarded = headers.getlist("x-forwarded-for"), headers.getlist("forwarded")
        wait = self._failures.take(caller_of(peer, *forwarded, self._proxies), self._failure_rate, self._timer())
        if wait:
            raise TooManyFailures(wait) from None

    def _fresh(self, presented: Presented | None) -> _Seen | None:
        """Return the key if it was read within the last second. Another secret is not cached: it may be a new one."""
        seen = None if presented is None else self._seen.get(presented.id)
        if seen is None or presented is None or not has_secret(seen.key, presented):
            return None
        return seen if self._timer() - seen.at < FRESH else None

    async def _look_without_key(self) -> _Seen | None:
        """Read whether there is any key, in one read for all requests that ask meanwhile: every second, all connections of
        a service without keys do. A request with a key makes a read of its own, since the key may be newer than the shared
        read."""
        looking = self._looking
        if looking is None or looking.done() or looking.get_loop() is not asyncio.get_running_loop():
            looking = self._looking = asyncio.ensure_future(self._look(""))
            looking.add_done_callback(_heed)
        return await asyncio.shield(looking)

    async def _look(self, id: str) -> _Seen | None:
        """Read a key from the database. Returns None if there is no key at all and none is needed."""
        at = self._timer()  # before the read: a slow read must shorten the time in the cache, not extend it
        keys = (await self._app.open()).keys
        found = await keys.find(id)
        if self._open_without_keys and not found.any:
            self._open_until = at + FRESH
            return None
        self._closed_until = at + FRESH
        return _Seen(keys, found.key, found.now, at)

    def _accepted(self, seen: _Seen, presented: Presented) -> ApiKey:
        now = seen.now + timedelta(seconds=self._timer() - seen.at)
        if not accepts(seen.key, presented, now) or seen.key is None:
            raise BadKey
        if self._seen.get(presented.id) is not seen:
            self._seen[presented.id] = seen
            if seen.key.use_to_be_noted(now):
                self._note_use(seen.keys, seen.key)
        return seen.key

    def _note_use(self, keys: ApiKeys, key: ApiKey) -> None:
        """Record the use of a key in the background: no request waits for it or fails because of it."""
        note = asyncio.ensure_future(_noted(keys, key))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)


def _heed(looked: "asyncio.Future[_Seen | None]") -> None:
    """Mark an error as seen even if all requests that waited for it are gone: otherwise asyncio would log it."""
    if not looked.cancelled():
        looked.exception()


async def _noted(keys: ApiKeys, key: ApiKey) -> None:
    try:
        await keys.note_use(key)
    except DemoraError as problem:
        notices.use_not_noted(key.id, problem)


def _presented(headers: Headers) -> Presented | None:
    """Return the key in the Authorization header, or None if there is not exactly one of the right form."""
    given = headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return present(text.strip()) if scheme.lower() == "bearer" else None
