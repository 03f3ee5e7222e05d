"""Who looks at the dashboard, and what they may do: by API key and session, or as the host application says.

A browser signs in once with an API key. Its cookie then holds a random token; the database knows the digest of the token,
the key and the expiry. They are read at most once a second, so a session ends within a second after its key. Where no key is
needed, or where the host application decides, the cookie holds a random token too: every form must repeat a digest of it,
which no other site knows.
"""

import hashlib
import hmac
import secrets

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from ..api.access import Guard, is_same_site
from ..api.callers import HostAccess, allowed_by
from ..app import Demora
from ..client.api_keys import SESSION_LIFE
from ..core.access import ApiKey, Scope, included
from ..errors import DemoraError
from ..settings import Settings
from ..wire.problems import CrossSite
from .sessions import Sessions

WITHOUT_KEY = "dashboard"  # the recorded author of a change where no key is needed
TOKEN_HEADER = "x-demora-token"
_LONGEST_TOKEN = 100
_EVERYTHING = included(tuple(Scope))


class Visitor(msgspec.Struct, frozen=True):
    """Who makes a request: the name that changes are recorded under, the allowed scopes, and the key if there is one."""

    by: str
    scopes: frozenset[Scope]
    key: ApiKey | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes


class Access:
    """Decides which requests are allowed. Without `ask_host`, API keys decide, and `open_without_keys` says whether everyone
    is let in while the database has no key, as the service does on a loopback address."""

    def __init__(self, app: Demora, settings: Settings, *, ask_host: HostAccess | None, open_without_keys: bool) -> None:
        self._app, self._settings, self._ask_host = app, settings, ask_host
        self._open = open_without_keys
        self._guard = Guard(app, settings, open_without_keys=open_without_keys)
        self._sessions, self.cookie = Sessions(app), ""

    async def prepare(self) -> None:
        """Learn the name of the cookie. It has the id of the database in it: cookies ignore ports, and two services on one
        host must not share theirs."""
        if not self.cookie:
            self.cookie = f"demora_{(await (await self._app.open()).keys.database_id())[:8]}"

    @property
    def by_keys(self) -> bool:
        return self._ask_host is None

    async def visitor(self, request: Request) -> Visitor | None:
        """Return who makes this request; None if they must sign in first."""
        if self._ask_host is not None:
            allowed, name = await allowed_by(self._ask_host, request)
            return Visitor(name or WITHOUT_KEY, allowed) if Scope.READ in allowed else None
        found = await self._sessions.find(token_of(request, self.cookie) or "")
        if found.key is not None and found.key.allows(Scope.READ):
            self._guard.count_request(found.key)
            return Visitor(found.key.name, included(found.key.scopes), found.key)
        return Visitor(WITHOUT_KEY, _EVERYTHING) if self._open and not found.any else None

    async def still_allows(self, request: Request) -> bool:
        """Return whether the visitor of an earlier request may still look. It counts for no rate, and a database that cannot
        be read changes nothing. The host application is not asked again: its streams are short."""
        if self._ask_host is not None:
            return True
        try:
            found = await self._sessions.find(token_of(request, self.cookie) or "")
        except DemoraError:
            return True
        return self._open and not found.any if found.key is None else found.key.allows(Scope.READ)

    async def sign_in(self, request: Request, text: str) -> str:
        """Return the token of a new session. Raises the error that refuses the key: wrong, not allowed to read, too fast."""
        headers = [(name, value) for name, value in request.headers.raw if name != b"authorization"]
        bearer = Headers(raw=[*headers, (b"authorization", b"Bearer " + text.strip().encode())])
        key = await self._guard.admit(bearer, Scope.READ, request.client.host if request.client else None)
        if key is None:  # no key is needed
            return new_token()
        return await (await self._app.open()).keys.open_session(key, text.strip())

    async def sign_out(self, request: Request) -> None:
        token = token_of(request, self.cookie)
        if token is not None and self.by_keys:
            await (await self._app.open()).keys.end_session(token)
            self._sessions.forget(token)

    def cookie_header(self, request: Request, token: str) -> str:
        """Return the Set-Cookie header for a token; an empty token removes the cookie."""
        secure = "; Secure" if _is_https(request) else ""
        life = int(SESSION_LIFE.total_seconds()) if token else 0
        path = request.scope.get("root_path") or "/"
        return f"{self.cookie}={token}; Path={path}; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"


def new_token() -> str:
    return secrets.token_urlsafe(32)


def token_of(request: Request, cookie: str) -> str | None:
    """Return the token in the cookie of a request; None if there is none of a possible length."""
    token = request.cookies.get(cookie)
    return token if token and len(token) <= _LONGEST_TOKEN else None


def form_token(token: str) -> str:
    """Return what forms of a page must repeat. It gives away nothing about the token of the cookie."""
    return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


def check_origin(request: Request) -> None:
    """Refuse a request that a page of another site may have made. Raises `CrossSite`."""
    if not is_same_site(request.headers, from_a_page=True):
        raise CrossSite


def check_form_token(request: Request, cookie: str, given: str) -> None:
    """Refuse a form that does not repeat the token of its page. Raises `CrossSite`."""
    token = token_of(request, cookie)
    if token is None or not hmac.compare_digest(form_token(token).encode(), given.encode()):
        raise CrossSite


def _is_https(request: Request) -> bool:
    # A caller who lies here only keeps its own browser from sending the cookie over http.
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"
