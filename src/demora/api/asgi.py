"""The ASGI application: checks a request, finds its route, reads it, answers, and turns errors into problems."""

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple

from starlette.types import Receive, Scope, Send

from ..app import Demora
from ..errors import Invalid, TooManySearches
from ..settings import Settings
from ..system import notices
from ..wire.problems import NoRoute, Overloaded, TooManyWaits, WrongMethod, as_sent, headers_of, problem_of
from .access import Door, Guard, opens_without_keys
from .budget import Budget, Share
from .callers import ByHost, ByKeys, Caller, Callers, HostAccess, check_access
from .headers import RequestHeaders
from .http_server.connection import ANSWERED
from .operations.operation import PROBLEM, ApiCall, MetricsText, Operation, Reply
from .reading import ClientGone, decode_body, decode_query, read_body, takes_gzip
from .request_ids import request_id
from .routes import ROUTES
from .routing import Paths, path_below_root
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
    # The host application may be reached from anywhere, whatever address the settings of demora name.
    guard = Guard(app, settings, open_without_keys=False)
    callers = ByKeys(guard, None) if ask_host is None else ByHost(ask_host)
    return Api(app, settings, None, callers=callers, stopping=Stopping(by_signals=True))


def make_api(app: Demora, settings: Settings, metrics: MetricsText | None = None) -> "Api":
    """Return the HTTP API of a service, for any ASGI server. Without `metrics`, `/metrics` is 404."""
    callers = ByKeys(Guard(app, settings, open_without_keys=opens_without_keys(settings)), Door(settings))
    return Api(app, settings, metrics, callers=callers, stopping=Stopping(by_signals=False))


class Api:
    """Answers every request, also with errors, and never raises. The part of a path that it is mounted at is `root_path`."""

    def __init__(
        self, app: Demora, settings: Settings, metrics: MetricsText | None, *, callers: Callers, stopping: Stopping
    ) -> None:
        self._callers, self._stopping = callers, stopping
        self._budget = Budget(settings.in_flight_bytes)
        self.waits = WaitLimit(settings.http_connections)
        service = Service(app, callers, Submissions(settings), stopping, self._budget, self.waits, metrics)
        self._resources = Paths(_resources(service))

    def stop(self) -> None:
        """Answer all requests that wait for the end of a job, so that the server can shut down."""
        self._stopping.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = RequestHeaders.of(scope)
        id = scope["request_id"] = request_id(headers)
        try:
            self._callers.check(scope["method"], headers)
            found = self._resources.find(path_below_root(scope))
            if found is None:
                raise NoRoute
            resource, scope["path_params"] = found
            await resource.answer(scope, headers, receive, send)
        except ClientGone:
            return
        except Exception as error:
            with contextlib.suppress(ClientGone):
                await _problem(scope, error).send(send, id)


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
    """All operations on one path."""

    def __init__(self, operations: Iterable[Operation], service: Service) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._service = service

    async def answer(self, scope: Scope, headers: RequestHeaders, receive: Receive, send: Send) -> None:
        operation = self._operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            raise WrongMethod(sorted(self._operations))
        service = self._service
        caller = await service.callers.admit(scope, headers, operation.scope)
        with service.budget.share() as share:
            query, body = decode_query(scope["query_string"], operation.query), None
            if operation.takes is not None:
                body = decode_body(await read_body(headers, receive, operation.most, share), headers, operation.takes)
            call = self._call(operation, scope, headers, query, body, receive, caller, share)
            del body  # an operation that waits forgets the one in its call
            try:
                reply = await operation.call(call)
            except Invalid as problem:
                raise as_sent(problem) from None
            del call  # and with it the body
            gzip = reply.compressible and takes_gzip(scope, headers)
            sending = reply.send(send, scope["request_id"], share, gzip=gzip)
            await (sending if reply.unsent is None else _sent_or_told(sending, reply.unsent, scope))

    def _call(
        self,
        operation: Operation,
        scope: Scope,
        headers: RequestHeaders,
        query: Any,
        body: Any,
        receive: Receive,
        caller: Caller,
        share: Share,
    ) -> ApiCall:
        service = self._service
        allowed = functools.partial(service.callers.still_admits, scope, operation.scope) if operation.scope else None
        return ApiCall(  # in the order of its fields: names would take longer than all the rest
            service.app,
            scope["path_params"],
            headers,
            query,
            body,
            receive,
            service.stopping,
            caller.by,
            caller.key,
            caller.may_read,
            scope.get("root_path", "").rstrip("/"),
            service.submissions,
            share,
            service.waits,
            scope["request_id"],
            service.metrics,
            allowed,
            scope["method"] == "HEAD",
        )


async def _sent_or_told(sending: Awaitable[None], unsent: Callable[[], Awaitable[None]], scope: Scope) -> None:
    """Send an answer. If it could not be written as a whole, call `unsent`."""
    answered = scope.get("extensions", {}).get(ANSWERED, lambda: True)
    sent = False
    try:
        await sending
        sent = answered()
    finally:
        if not sent:
            await unsent()


def _resources(service: Service) -> dict[str, _Resource]:
    by_path: dict[str, list[Operation]] = {}
    for operation in ROUTES:
        by_path.setdefault(operation.path, []).append(operation)
    return {path: _Resource(operations, service) for path, operations in by_path.items()}


def _problem(scope: Scope, error: Exception) -> Reply:
    """Return the answer for an error. Logs errors that the caller did not cause."""
    id = scope["request_id"]
    problem = problem_of(error, id)
    if problem.status >= 500 and not isinstance(error, Overloaded | TooManySearches | TooManyWaits):
        notices.request_failed(scope["method"], scope["path"], error, id)
    return Reply(problem.status, problem, headers_of(error), PROBLEM)
