"""The ASGI application: checks a request, finds its route, reads it, answers, and turns errors into problems."""

import contextlib
import functools
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ..app import Demora
from ..errors import Invalid, TooManySearches
from ..settings import Settings
from ..system import notices
from .access import Door, Guard
from .budget import Budget, Share
from .callers import ByHost, ByKeys, Caller, Callers, HostAccess, check_access
from .http_server.connection import ANSWERED
from .operations.operation import PROBLEM, Ask, MetricsText, Operation, Reply
from .problems import NoRoute, Overloaded, TooManyWaits, WrongMethod, as_sent, headers_of, problem_of
from .reading import ClientGone, decode_body, decode_query, read_body, takes_gzip
from .request_ids import request_id, with_id
from .routes import ROUTES
from .stopping import Stopping
from .submitting import Submissions
from .waiting import WaitLimit


def api(app: Demora, *, access: Literal["keys"] | HostAccess) -> "Api":
    """Return the HTTP API as an ASGI application, to be mounted in another one: `web.mount("/queue", api(jobs,
    access="keys"))`.

    `access` says who may use it. With `"keys"` every request needs an API key, also while there is none. A function gets the
    request and returns the scope or scopes of the user whom the host application has signed in, or None to refuse; or a pair
    of these and the name of the user, under which changes are recorded. Requests that wait are answered when the server gets
    a stop signal.
    """
    ask_host, settings = check_access(access), app.settings
    # A guard lets callers in without a key on a loopback address; behind a proxy every caller seems to be on one.
    guard = Guard(app, msgspec.structs.replace(settings, host="0.0.0.0"))
    callers = ByKeys(guard, None) if ask_host is None else ByHost(ask_host)
    return Api(app, settings, None, callers=callers, stopping=Stopping(by_signals=True))


def make_api(app: Demora, settings: Settings, metrics: MetricsText | None = None) -> "Api":
    """Return the HTTP API of a service, for any ASGI server. Without `metrics`, `/metrics` is 404."""
    callers = ByKeys(Guard(app, settings), Door(settings))
    return Api(app, settings, metrics, callers=callers, stopping=Stopping(by_signals=False))


class Api:
    """Answers every request, also with errors, and never raises. The part of a path that it is mounted at is `root_path`."""

    def __init__(
        self, app: Demora, settings: Settings, metrics: MetricsText | None, *, callers: Callers, stopping: Stopping
    ) -> None:
        self._callers, self._stopping = callers, stopping
        self._budget = Budget(settings.in_flight_bytes)
        waits = WaitLimit(settings.http_connections)
        service = Service(app, callers, Submissions(settings), stopping, self._budget, waits, metrics)
        routes = _routes(service)
        self._router = Router(routes, redirect_slashes=False, default=_nowhere)

    def stop(self) -> None:
        """Answer all requests that wait for the end of a job, so that the server can shut down."""
        self._stopping.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        id = scope["request_id"] = request_id(headers)
        send = with_id(send, id)
        try:
            self._callers.check(scope["method"], headers)
            await self._router(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            with contextlib.suppress(ClientGone):
                await _problem(scope, error).send(send)


class Service(NamedTuple):
    """What all operations share."""

    app: Demora
    callers: Callers
    submissions: Submissions
    stopping: Stopping
    budget: Budget
    waits: WaitLimit
    metrics: MetricsText | None


class _Resource:
    """All operations on one path, as an ASGI application."""

    def __init__(self, operations: Iterable[Operation], service: Service) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            raise WrongMethod(sorted(self._operations))
        service = self._service
        caller = await service.callers.admit(scope, operation.scope)
        with service.budget.share() as share:
            ask = await self._ask(operation, scope, receive, caller, share)
            try:
                reply = await operation.call(ask)
            except Invalid as problem:
                raise as_sent(problem) from None
            del ask  # and with it the body
            await _send(reply, scope, send, share)

    async def _ask(self, operation: Operation, scope: Scope, receive: Receive, caller: Caller, share: Share) -> Ask:
        headers, body, service = Headers(scope=scope), None, self._service
        query = decode_query(scope["query_string"], operation.query)
        if operation.takes is not None:
            body = decode_body(await read_body(headers, receive, operation.most, share), headers, operation.takes)
        return Ask(
            *(service.app, scope["path_params"], headers, query, body, receive, service.stopping),
            by=caller.by,
            key=caller.key,
            may_read=caller.may_read,
            base=scope.get("root_path", "").rstrip("/"),
            submissions=service.submissions,
            share=share,
            waits=service.waits,
            id=scope["request_id"],
            metrics=service.metrics,
            still_allowed=functools.partial(service.callers.still_admits, scope, operation.scope)
            if operation.scope
            else None,
            head_only=scope["method"] == "HEAD",
        )


async def _send(reply: Reply, scope: Scope, send: Send, share: Share) -> None:
    """Send an answer. If it could not be written as a whole, call its `unsent`."""
    answered = scope.get("extensions", {}).get(ANSWERED, lambda: True)
    sent = False
    try:
        await reply.send(send, share, gzip=reply.compressible and takes_gzip(scope))
        sent = answered()
    finally:
        if not sent and reply.unsent is not None:
            await reply.unsent()


def _routes(service: Service) -> list[Route]:
    by_path: dict[str, list[Operation]] = {}
    for operation in ROUTES:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, _Resource(operations, service)) for path, operations in by_path.items()]


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise NoRoute


def _problem(scope: Scope, error: Exception) -> Reply:
    """Return the answer for an error. Logs errors that the caller did not cause."""
    id = scope["request_id"]
    problem = problem_of(error, id)
    if problem.status >= 500 and not isinstance(error, Overloaded | TooManySearches | TooManyWaits):
        notices.request_failed(scope["method"], scope["path"], error, id)
    return Reply(problem.status, problem, headers_of(error), PROBLEM)
