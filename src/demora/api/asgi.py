"""The ASGI application: checks a request, finds its route, reads it, answers, and turns errors into problems."""

import asyncio
import contextlib
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ..app import Demora
from ..core.access import ApiKey
from ..errors import Invalid, TooManySearches
from ..settings import Settings
from ..system import notices
from .access import Door, Guard
from .budget import Budget, Share
from .operations import PROBLEM, WITHOUT_KEY, Ask, MetricsText, Operation, Reply
from .problems import NoRoute, Overloaded, WrongMethod, as_sent, headers_of, problem_of
from .reading import ClientGone, decode_body, decode_query, read_body, takes_gzip
from .request_ids import request_id, with_id
from .routes import ROUTES
from .submitting import Submissions


def make_api(app: Demora, settings: Settings, metrics: MetricsText | None = None) -> "Api":
    """Return the HTTP API of an application, for any ASGI server. Without `metrics`, `/metrics` is 404."""
    return Api(app, settings, metrics)


class Api:
    """Answers every request, also with errors, and never raises."""

    def __init__(self, app: Demora, settings: Settings, metrics: MetricsText | None) -> None:
        self._door = Door(settings)
        self._stopping = asyncio.Event()
        self._budget = Budget(settings.in_flight_bytes)
        routes = _routes(app, Guard(app, settings), Submissions(settings), self._stopping, self._budget, metrics)
        self._router = Router(routes, redirect_slashes=False, default=_nowhere)

    def stop(self) -> None:
        """Answer all requests that wait for the end of a job, so that the server can shut down."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        id = scope["request_id"] = request_id(headers)
        send = with_id(send, id)
        try:
            self._door.check(scope["method"], headers)
            await self._router(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            with contextlib.suppress(ClientGone):
                await _problem(scope, error).send(send)


class _Resource:
    """All operations on one path, as an ASGI application."""

    def __init__(
        self,
        operations: Iterable[Operation],
        app: Demora,
        guard: Guard,
        submissions: Submissions,
        stopping: asyncio.Event,
        budget: Budget,
        metrics: MetricsText | None,
    ) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._app, self._guard, self._submissions = app, guard, submissions
        self._stopping, self._budget, self._metrics = stopping, budget, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            raise WrongMethod(sorted(self._operations))
        peer = scope.get("client")
        key = await self._guard.admit(Headers(scope=scope), operation.scope, peer[0] if peer else None)
        with self._budget.share() as share:
            ask = await self._ask(operation, scope, receive, key, share)
            try:
                reply = await operation.call(ask)
            except Invalid as problem:
                raise as_sent(problem) from None
            del ask  # and with it the body
            await reply.send(send, share, gzip=reply.compressible and takes_gzip(scope))

    async def _ask(self, operation: Operation, scope: Scope, receive: Receive, key: ApiKey | None, share: Share) -> Ask:
        headers, body = Headers(scope=scope), None
        query = decode_query(scope["query_string"], operation.query)
        if operation.takes is not None:
            body = decode_body(await read_body(headers, receive, operation.most, share), headers, operation.takes)
        return Ask(
            *(self._app, scope["path_params"], headers, query, body, receive, self._stopping),
            by=WITHOUT_KEY if key is None else key.name,
            key=key,
            submissions=self._submissions,
            share=share,
            id=scope["request_id"],
            metrics=self._metrics,
        )


def _routes(
    app: Demora,
    guard: Guard,
    submissions: Submissions,
    stopping: asyncio.Event,
    budget: Budget,
    metrics: MetricsText | None,
) -> list[Route]:
    by_path: dict[str, list[Operation]] = {}
    for operation in ROUTES:
        by_path.setdefault(operation.path, []).append(operation)
    return [
        Route(path, _Resource(operations, app, guard, submissions, stopping, budget, metrics))
        for path, operations in by_path.items()
    ]


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise NoRoute


def _problem(scope: Scope, error: Exception) -> Reply:
    """Return the answer for an error. Logs errors that the caller did not cause."""
    id = scope["request_id"]
    problem = problem_of(error, id)
    if problem.status >= 500 and not isinstance(error, Overloaded | TooManySearches):
        notices.request_failed(scope["method"], scope["path"], error, id)
    return Reply(problem.status, problem, headers_of(error), PROBLEM)
