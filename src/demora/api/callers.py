"""Who makes a request, and what they may do: as their API key says (`ByKeys`), or as a host application says (`ByHost`)."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, NamedTuple, Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope as Connection

from ..core.access import ApiKey, Scope, included
from ..errors import DemoraError, Invalid
from ..wire.problems import NotForCaller
from .access import Door, Guard, check_same_site
from .headers import RequestHeaders

WITHOUT_KEY = "http"  # the recorded author of a change where no key is needed
Scopes = Scope | Iterable[Scope] | None
Granted = Scopes | tuple[Scopes, str]  # also with the name of the user; None refuses
HostAccess = Callable[[Request], Granted | Awaitable[Granted]]
LONGEST_NAME = 100  # characters of a user's name that are recorded


class Caller(msgspec.Struct, frozen=True):
    """Who makes a request: the name that changes are recorded under, the key if there is one, and whether they may read."""

    by: str
    key: ApiKey | None
    may_read: bool


_ANYONE = Caller(WITHOUT_KEY, None, may_read=True)  # where no key is needed


class Callers(Protocol):
    """Decides which requests are allowed."""

    def check(self, method: str, headers: Headers) -> None:
        """Return if the host and the origin of a request are allowed. Raises `WrongHost` or `CrossSite`."""

    async def admit(self, connection: Connection, headers: Headers, scope: Scope | None) -> Caller:
        """Return who makes a request for an operation of this scope. Raises the error that refuses the request."""

    async def still_admits(self, connection: Connection, scope: Scope) -> bool:
        """Return whether an admitted request would be admitted now. It counts for no rate, and a database that cannot be
        read changes nothing."""


class ByKeys:
    """API keys decide. The service of demora itself also has a door, which checks host and origin."""

    def __init__(self, guard: Guard, door: Door | None) -> None:
        self._guard, self._door = guard, door

    def check(self, method: str, headers: Headers) -> None:
        # A host application has accepted the name, and no browser sends a key by itself.
        if self._door is not None:
            self._door.check(method, headers)

    async def admit(self, connection: Connection, headers: Headers, scope: Scope | None) -> Caller:
        if scope is None or self._guard.is_open:
            return _ANYONE
        peer = connection.get("client")
        key = await self._guard.admit(headers, scope, peer[0] if peer else None)
        return _ANYONE if key is None else Caller(key.name, key, key.allows(Scope.READ))

    async def still_admits(self, connection: Connection, scope: Scope) -> bool:
        return await self._guard.still_admits(RequestHeaders.of(connection), scope)


class ByHost:
    """The host application decides, perhaps by a cookie. So pages of other sites must not make its users change anything."""

    def __init__(self, ask_host: HostAccess) -> None:
        self._ask_host = ask_host

    def check(self, method: str, headers: Headers) -> None:
        check_same_site(method, headers)

    async def admit(self, connection: Connection, headers: Headers, scope: Scope | None) -> Caller:
        if scope is None:
            return Caller(WITHOUT_KEY, None, may_read=False)
        allowed, name = await allowed_by(self._ask_host, Request(connection))
        if scope not in allowed:
            raise NotForCaller(scope)
        return Caller(name or WITHOUT_KEY, None, Scope.READ in allowed)

    async def still_admits(self, connection: Connection, scope: Scope) -> bool:
        try:
            return scope in (await allowed_by(self._ask_host, Request(connection))).scopes
        except DemoraError:
            return True


def check_access(access: Literal["keys"] | HostAccess) -> HostAccess | None:
    """Return the function of a host application, None if API keys decide. Raises `Invalid`."""
    if access != "keys" and not callable(access):
        raise Invalid("access", 'must be "keys", or a function from a request to a Scope, several or None')
    return None if access == "keys" else access


class Allowed(NamedTuple):
    """What the host application allows to the caller of a request, and the caller's name if it says one."""

    scopes: frozenset[Scope]
    name: str | None


async def allowed_by(ask_host: HostAccess, request: Request) -> Allowed:
    """Return what the host application allows to the caller of a request: no scopes to refuse."""
    answer = ask_host(request)
    granted: Granted = await answer if inspect.isawaitable(answer) else answer
    if isinstance(granted, tuple) and len(granted) == 2 and not isinstance(granted[1], Scope):
        scopes, name = granted  # any text is a name here, also `admin`: only a `Scope` is a scope
        return Allowed(_scopes(scopes), name[:LONGEST_NAME] or None)
    return Allowed(_scopes(granted), None)


def _scopes(granted: Granted) -> frozenset[Scope]:
    several = () if granted is None else [granted] if isinstance(granted, str) else granted
    return included(Scope(str(one)) for one in several)
