"""The ASGI application of the dashboard: finds the page, checks who asks, and draws the answer or the error."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ..api.access import Door, opens_without_keys
from ..api.callers import HostAccess, check_access
from ..api.request_ids import request_id
from ..api.routing import path_below
from ..api.submitting import Submissions
from ..api.waiting import WaitLimit
from ..app import Demora
from ..client.shared import SharedReads
from ..core.access import Scope as KeyScope
from ..core.spans import timestamp
from ..errors import Invalid, TooLarge, TooManySearches
from ..settings import Settings
from ..system import notices
from ..wire.problems import CrossSite, TooManyFailures, TooManyRequests, TooManyWaits, headers_of, kind_of
from .access import (
    TOKEN_HEADER,
    WITHOUT_KEY,
    Access,
    Visitor,
    check_form_token,
    check_origin,
    form_token,
    new_token,
    token_of,
)
from .drawing import draw, has_block, visible
from .pages import actions, failures, first_minute, job, jobs, overview, queues, schedules, system
from .reading import read_activity, totals
from .static_files import FOREVER, static_file, version
from .stream import MOUNTED_LIFE, Streams
from .visit import Acted, NoPage, PageAnswer, Redact, Route, View, Visit, address

HTML = "text/html; charset=utf-8"
PART = "x-demora-part"  # names the block of a page that a script asks for
MOST_BLOCKS = 100  # live blocks that are shared at a time
MOST_FORM = 2 * 1024 * 1024  # bytes: a payload of 1 MiB, percent-encoded
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *jobs.ROUTES,
    *job.ROUTES,
    *actions.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *failures.ROUTES,
    *system.ROUTES,
    *first_minute.ROUTES,
)


def dashboard(app: Demora, *, access: Literal["keys"] | HostAccess, redact: Redact | None = None) -> "Dashboard":
    """Return the dashboard as an ASGI application, to be mounted in another one: `app.mount("/jobs", dashboard(jobs,
    access="keys"))`.

    `access` says who may see it. With `"keys"` a browser signs in with an API key, always. A function gets the request and
    returns the scope or scopes of the user whom the host application has signed in, or None to refuse; or a pair of these
    and the name of the user, under which changes are recorded.

    `redact` takes secrets out of payloads and results before people see, download or copy them. It gets the job, "payload"
    or "result", and the value, and returns the value to show.
    """
    ask_host, settings = check_access(access), app.settings
    decides = Access(app, settings, ask_host=ask_host, open_without_keys=False)
    return Dashboard(app, settings, decides, stream_life=MOUNTED_LIFE, redact=redact)


def service_dashboard(app: Demora, settings: Settings, waits: WaitLimit | None = None) -> "Dashboard":
    """Return the dashboard of a service, which checks the Host header as its API does. Its streams count among the `waits`
    of the API, since they share the connections of one server."""
    access = Access(app, settings, ask_host=None, open_without_keys=opens_without_keys(settings))
    return Dashboard(app, settings, access, door=Door(settings), waits=waits)


class Dashboard:
    """Answers every request, also with errors, and never raises. The part of a path that it is mounted at is `root_path`."""

    def __init__(
        self,
        app: Demora,
        settings: Settings,
        access: Access,
        *,
        door: Door | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        stream_life: float | None = None,
        redact: Redact | None = None,
        waits: WaitLimit | None = None,
    ) -> None:
        self._redact, self._waits = redact, waits or WaitLimit(settings.http_connections)
        self._app, self._access, self._door, self._now = app, access, door, now
        self.streams = Streams(app, self._outdate, life=stream_life)
        self._shared, self._submissions = SharedReads(found=self.streams.change), Submissions(settings)
        self._blocks = SharedReads(most=MOST_BLOCKS)
        self._routes = [(_pattern(route.path), route) for route in ROUTES]

    def stop(self) -> None:
        """End the streams of open pages, so that the server can shut down."""
        self.streams.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _no_lifespan(receive, send)
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        scope.setdefault("request_id", request_id(request.headers))
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = self._refusal(request, error, None)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = _path_in(request)
        if self._door is not None:
            self._door.check(request.method, request.headers)
        if path.startswith("/static/"):
            return _static(request, path)
        await self._access.prepare()
        if path == "/sign-in":
            return await self._sign_in(request)
        if path == "/sign-out" and request.method == "POST":
            return await self._sign_out(request)
        visitor = await self._access.visitor(request)
        if visitor is None:
            return self._ask_to_sign_in(request)
        if path == "/stream" and request.method in ("GET", "HEAD"):
            waiting = self._waits.take(visitor.key) if request.method == "GET" else None
            return self.streams.open(partial(self._access.still_allows, request), waiting)
        try:
            return await self._page(request, path, visitor)
        except ClientDisconnect:
            raise
        except Exception as error:
            return self._refusal(request, error, visitor)

    async def _page(self, request: Request, path: str, visitor: Visitor) -> Response:
        route, found = self._find("GET" if request.method == "HEAD" else request.method, path)
        form: Mapping[str, str] = {}
        if route.method == "POST":
            check_origin(request)
            check_form_token(request, self._access.cookie, request.headers.get(TOKEN_HEADER, ""))
            form = await _read_form(request)
        if not visitor.allows(route.scope):
            raise NotAllowed(route.scope)
        if route.method == "GET" and request.headers.get(PART) == "live":
            return await self._live_block(request, route, found, visitor)
        token = token_of(request, self._access.cookie)
        fresh = None if token else new_token()
        visit = await self._visit(request, visitor, form_token(token or fresh or ""), found, form)
        response = await self._drawn(visit, await route.call(visit))
        if fresh:
            response.headers.append("set-cookie", self._access.cookie_header(request, fresh))
        return response

    def _find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        for pattern, route in self._routes:
            matched = pattern.fullmatch(path) if route.method == method else None
            if matched is not None:
                return route, matched.groupdict()
        raise NoPage

    async def _visit(
        self, request: Request, visitor: Visitor, token: str, path: Mapping[str, str], form: Mapping[str, str]
    ) -> Visit:
        base = request.scope.get("root_path", "").rstrip("/")
        return Visit(
            *(self._app, await self._app.open(), request, visitor, base, token, path, form),
            shared=self._shared,
            submissions=self._submissions,
            now=self._now(),
            began=asyncio.get_running_loop().time(),
            redact=self._redact,
        )

    async def _live_block(self, request: Request, route: Route, path: Mapping[str, str], visitor: Visitor) -> Response:
        """Return the live part of a page. All visitors with the same scopes share it for a second, so it is drawn for their
        scopes and contains neither their name nor their token."""
        anyone = Visitor(WITHOUT_KEY, visitor.scopes)

        async def read() -> LiveBlock:
            visit = await self._visit(request, anyone, "", path, {})
            answer = await route.call(visit)
            if not isinstance(answer, View) or not has_block(answer.template, "live"):
                raise NoPage
            drawn = await self._drawn(visit, answer)
            return LiveBlock(bytes(drawn.body), drawn.status_code)

        scopes = ",".join(sorted(visitor.scopes))
        name = f"{scopes} {request.scope.get('root_path', '')} {request.scope['path']}?{request.url.query}"
        block = await self._blocks.get(name, 1.0, read)
        return Response(block.body, block.status, {"x-demora-now": timestamp(self._now())}, HTML)

    async def _drawn(self, visit: Visit, answer: PageAnswer) -> Response:
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Acted):
            self._shared.forget()
            self.streams.change()
            at = None if answer.at is None else timestamp(answer.at)
            done = {"words": visible(answer.words), "undo": answer.undo, "leaves": answer.go is not None}
            event = {"demora:done": done | ({"at": at} if at else {})}
            headers = {"hx-trigger": _json(event)} | ({"hx-redirect": answer.go} if answer.go else {})
            return Response(status_code=200 if answer.go else 204, headers=headers)
        failed = await _failed(visit) if "page" in answer.values else 0
        mark = Markup('<span hidden data-failed="{}"></span>').format(failed)
        frame = {"by_keys": self._access.by_keys, "failed": failed, "failed_mark": mark}
        values = {"visit": visit, "base": visit.base, "now": visit.now, **frame, **answer.values}
        is_live = visit.request.headers.get(PART) == "live"
        text = draw(answer.template, values, "live") + str(mark) if is_live else draw(answer.template, values)
        return Response(text, answer.status, {**answer.headers, "x-demora-now": timestamp(visit.now)}, HTML)

    def _outdate(self) -> None:
        self._shared.outdate()
        self._blocks.forget()

    # Signing in and out, with plain forms

    def _ask_to_sign_in(self, request: Request) -> Response:
        """Send a browser to the sign-in page by a refresh, not by a redirect.

        A link in a mail or a chat does not send a SameSite=Strict cookie, and neither does a redirect after it. A refresh
        comes from our own page, so the sign-in page sees the cookie and returns to the page that was asked for.
        """
        if not self._access.by_keys:
            return Response("you may not see this page", 403, media_type="text/plain")
        base = request.scope.get("root_path", "").rstrip("/")
        there = address(base, "sign-in", next=_wanted(request))
        if "hx-request" in request.headers or PART in request.headers:
            return Response(status_code=401, headers={"hx-redirect": there})
        return Response(draw("refresh.html", {"there": there, "base": base}), 401, media_type=HTML)

    async def _sign_in(self, request: Request) -> Response:
        base = request.scope.get("root_path", "").rstrip("/")
        there = _inside(request.query_params.get("next", ""), base) or base or "/"
        if not self._access.by_keys or (request.method == "GET" and await self._access.visitor(request) is not None):
            return RedirectResponse(there, 303)
        if request.method != "POST":
            return self._sign_in_page(request, base, there)
        check_origin(request)
        form = await _read_form(request)
        try:
            check_form_token(request, self._access.cookie, form.get("token", ""))
        except CrossSite:
            return self._sign_in_page(request, base, there, "The form was too old, or cookies are off. Try again.", 403)
        try:
            token = await self._access.sign_in(request, form.get("key", ""))
        except Exception as error:
            kind = kind_of(error)
            if kind.status >= 500:
                raise
            return self._sign_in_page(request, base, there, _why_refused(error, kind.status), kind.status)
        response = RedirectResponse(there, 303)
        response.headers.append("set-cookie", self._access.cookie_header(request, token))
        return response

    def _sign_in_page(
        self, request: Request, base: str, there: str, problem: str | None = None, status: int = 200
    ) -> Response:
        token = token_of(request, self._access.cookie) or new_token()
        values = {"base": base, "there": there, "token": form_token(token), "problem": problem}
        response = Response(draw("sign_in.html", values), status, media_type=HTML)
        response.headers.append("set-cookie", self._access.cookie_header(request, token))
        return response

    async def _sign_out(self, request: Request) -> Response:
        check_origin(request)
        form = await _read_form(request)
        check_form_token(request, self._access.cookie, form.get("token", ""))
        await self._access.sign_out(request)
        base = request.scope.get("root_path", "").rstrip("/")
        response = RedirectResponse(f"{base}/sign-in", 303)
        response.headers.append("set-cookie", self._access.cookie_header(request, ""))
        return response

    def _refusal(self, request: Request, error: Exception, visitor: Visitor | None) -> Response:
        """Return the page of an error, or its words for the script of the page that the action came from."""
        if isinstance(error, NoPage | NotAllowed):
            status, title, words = (404, "No such page", str(error)) if isinstance(error, NoPage) else (
                403, "Not allowed", str(error))  # fmt: skip
        else:
            kind = kind_of(error)
            status, title, words = kind.status, kind.title, kind.detail or str(error)
        if isinstance(error, Invalid):
            words = f"{error.field}: {error.reason}"
        if status >= 500 and not isinstance(error, TooManySearches | TooManyWaits):
            notices.request_failed(request.method, request.url.path, error, request.scope["request_id"])
        words = visible(words[:500])
        headers = {name: value for name, value in headers_of(error).items() if name == "retry-after"}
        if request.method == "POST" or PART in request.headers or "hx-request" in request.headers:
            event = {"demora:refused": {"title": title, "words": words, "status": status}}
            headers |= {"hx-trigger": _json(event), "hx-reswap": "none"}
            return Response(words, status, headers, "text/plain; charset=utf-8")
        base = request.scope.get("root_path", "").rstrip("/")
        values = {"base": base, "status": status, "title": title, "words": words, "visitor": visitor}
        return Response(draw("problem.html", values), status, headers, HTML)


class LiveBlock(msgspec.Struct, frozen=True):
    """The live part of a page, as it is sent."""

    body: bytes
    status: int


class NotAllowed(Exception):
    """The visitor lacks a scope."""

    def __init__(self, scope: KeyScope) -> None:
        super().__init__(f"this needs the scope {scope}, which you do not have")


async def _failed(visit: Visit) -> int:
    """Return how many dead letters there are, for the rail of every page."""
    return totals((await read_activity(visit)).queues).dead


def _static(request: Request, path: str) -> Response:
    _, _, build, name = (*path.split("/", 3), "", "")[:4]
    found = static_file(name)
    if found is None or request.method not in ("GET", "HEAD"):
        raise NoPage
    headers = {"cache-control": FOREVER if build == version() else "no-cache", "vary": "accept-encoding"}
    headers["cross-origin-resource-policy"] = "same-origin"
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers={**headers, "content-encoding": "gzip"}, media_type=found.media)
    return Response(found.body, headers=headers, media_type=found.media)


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. A field that is given several times has its values joined by commas."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_FORM:
            raise TooLarge("body", f"is over the limit of {MOST_FORM:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise Invalid("form", "is not valid UTF-8 or has too many fields") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    return fields


def _path_in(request: Request) -> str:
    """Return the path below the one that the dashboard is mounted at."""
    return path_below(request.scope["path"], request.scope.get("root_path", "").rstrip("/")).rstrip("/") or "/"


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


def _wanted(request: Request) -> str:
    path, query = str(request.scope["path"]), request.url.query
    return path + (f"?{query}" if query else "")


def _inside(there: str, base: str) -> str | None:
    """Return an address to go to after signing in, if it is a page of this dashboard."""
    harmless = there.isprintable() and "\\" not in there and not there.startswith("//")
    return there if harmless and (there == base or there.startswith((f"{base}/", f"{base}?"))) else None


def _why_refused(error: Exception, status: int) -> str:
    if isinstance(error, TooManyFailures | TooManyRequests):
        return f"Too many tries. Wait {error.retry_after} s."
    return "This key may not read jobs." if status == 403 else "This key is not valid: unknown, revoked or expired."


def _json(event: Any) -> str:
    return json.dumps(event, ensure_ascii=True)  # a header carries ASCII


async def _no_lifespan(receive: Receive, send: Send) -> None:
    """Let a server run this application alone: there is nothing to start or to stop."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
