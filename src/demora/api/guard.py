"""Who is let in where: a request needs a key with the scope of its operation, as soon as there is any key at all.

A service on a loopback address asks for none until the first key is made. From then on it asks everybody, since behind a
reverse proxy every caller looks local; neither a revocation nor an expiry opens it again. A service that others can reach
always asks.

Requests are limited here too, in the memory of this process: those of each key, and those without a valid key by the address
that they come from. A valid key is let in whatever else comes from its address.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from starlette.datastructures import Headers

from .. import notices
from ..addresses import read_address
from ..app import Demora
from ..core.access import ApiKey, Presented, Scope, accepts, has_secret, present
from ..core.callers import caller_of
from ..core.ratelimit import Rate, RateLimiter
from ..errors import DemoraError
from ..keys import Keys
from ..settings import Settings
from .problems import BadKey, NoKey, TooManyFailures, TooManyRequests, WrongScope

FRESH = 1.0  # seconds that what was read of a key is believed: so long may a revocation take
KEY_BURST = 2  # seconds' worth of requests that a key may make at once
FAILED_BURST = 10  # the same of failed authentications
MOST_REMEMBERED = 10_000  # keys, and addresses, whose requests are counted


class _Seen(msgspec.Struct, frozen=True):
    """A key as it was read from `keys`: by the database's clock at `now`, by ours at `at`."""

    keys: Keys
    key: ApiKey | None
    now: datetime
    at: float


class Guard:
    """Lets requests in or raises why not. Within a second a key is looked up once."""

    def __init__(self, app: Demora, settings: Settings, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._app, self._timer = app, timer
        self._local = read_address(settings.host).is_loopback
        self._open_until = self._closed_until = -math.inf  # of requests without a key
        self._seen: dict[str, _Seen] = {}
        self._notes: set[asyncio.Task[None]] = set()
        self._usual, self._proxies = settings.key_limits, settings.proxies
        self._requests, self._failures = RateLimiter(MOST_REMEMBERED), RateLimiter(MOST_REMEMBERED)
        self._failure_rate = Rate(settings.failed_auth_rate, settings.failed_auth_rate * FAILED_BURST)

    async def admit(self, headers: Headers, scope: Scope | None, peer: str | None = None) -> ApiKey | None:
        """Let a request for an operation of this scope in, or raise why not. With no scope everybody may. Answers with the
        key, None if none is needed. `peer` is the address at the other end of the connection."""
        if scope is None or self._timer() < self._open_until:
            return None
        try:
            key = await self._identify(headers)
        except (NoKey, BadKey):
            self._count_failure(headers, peer)
            raise
        if key is None:
            return None
        self._count_request(key)
        if not key.allows(scope):
            raise WrongScope(scope)
        return key

    async def _identify(self, headers: Headers) -> ApiKey | None:
        """The key that is presented; None if none is needed."""
        presented = _presented(headers)
        if presented is None and self._timer() < self._closed_until:
            raise BadKey if "authorization" in headers else NoKey
        seen = self._fresh(presented) or await self._look(presented)
        if seen is None:
            return None
        if presented is None:
            raise BadKey if "authorization" in headers else NoKey
        return self._accepted(seen, presented)

    def _count_request(self, key: ApiKey) -> None:
        rate = key.limits.over(self._usual).rate or 0
        wait = self._requests.take(key.id, Rate(rate, rate * KEY_BURST), self._timer())
        if wait:
            raise TooManyRequests(wait)

    def _count_failure(self, headers: Headers, peer: str | None) -> None:
        forwarded = headers.getlist("x-forwarded-for"), headers.getlist("forwarded")
        wait = self._failures.take(caller_of(peer, *forwarded, self._proxies), self._failure_rate, self._timer())
        if wait:
            raise TooManyFailures(wait) from None

    def _fresh(self, presented: Presented | None) -> _Seen | None:
        """What was seen of the key within the last second. With another secret it is looked up: it may have a new one."""
        seen = None if presented is None else self._seen.get(presented.id)
        if seen is None or presented is None or not has_secret(seen.key, presented):
            return None
        return seen if self._timer() - seen.at < FRESH else None

    async def _look(self, presented: Presented | None) -> _Seen | None:
        """What the store says of the key; None if it has no key at all and none is needed."""
        at = self._timer()  # taken before: what a slow look found is believed for less time, not for more
        keys = (await self._app.open()).keys
        found = await keys.find("" if presented is None else presented.id)
        if self._local and not found.any:
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

    def _note_use(self, keys: Keys, key: ApiKey) -> None:
        """Aside: no request waits for it, and none fails with it."""
        note = asyncio.ensure_future(_noted(keys, key))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)


async def _noted(keys: Keys, key: ApiKey) -> None:
    try:
        await keys.note_use(key)
    except DemoraError as problem:
        notices.use_not_noted(key.id, problem)


def _presented(headers: Headers) -> Presented | None:
    """The one key that the request presents, if it has the form of a key."""
    given = headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return present(text.strip()) if scheme.lower() == "bearer" else None
