"""Replays stored requests in a worker, each into a twin of its endpoint's route.

The twin is a route of a private application, which shares the overrides and exception handlers of the web application. It
answers with the response model of the public route. The lifespan of the web application is open meanwhile, so that
endpoints find what it prepared.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Scope

from ...errors import BadHandler
from ...handlers.control import Fail, Retry
from .declaration import AnyFunction, Declaration, StoredValue
from .public_route import PublicRoute, public_route
from .site import Site
from .stored_request import VALUES, StoredRequest
from .uploads import Uploads

_UNDECODED = "the endpoint answered with {}, but the result of a job is JSON"


class Replay:
    """Replays the stored requests of one endpoint, whose routes call its `front`."""

    def __init__(self, site: Site, job_type: str, declaration: Declaration, front: AnyFunction) -> None:
        self._site, self._job_type, self._declaration, self._front = site, job_type, declaration, front
        self._web: FastAPI | None = None  # whose twins these are
        self._public: PublicRoute | None = None
        self._twins: dict[frozenset[str], _Private] = {}
        self._ran_in_request: dict[AnyFunction, AnyFunction] = {value.call: _giving(value) for value in declaration.stored}
        if declaration.check is not None:
            self._ran_in_request[declaration.check] = _nothing

    def is_in(self, web: FastAPI) -> bool:
        """Return whether the web application has a route of this endpoint. `BadHandler` if no worker could replay it."""
        return public_route(self._job_type, self._front, web) is not None

    async def __call__(self, stored: StoredRequest, uploads: Uploads | None) -> Any:
        """Run the endpoint and return its answer as JSON.

        An answer of 4xx fails the job for good, and one of 5xx is retried. An error that FastAPI does not handle is raised.
        """
        answer = _Answer(stored.content(uploads))
        twin, web = self._twin(frozenset(stored.path_params)), self._site.web
        twin.web.dependency_overrides = dict(web.dependency_overrides) | self._ran_in_request | twin.ran_in_request
        await twin.app(stored.scope() | {"app": web, "state": dict(self._site.state)}, answer.receive, answer.send)
        return answer.result()

    def public(self) -> PublicRoute:
        """Return the public route. `BadHandler` if there is none."""
        web = self._site.web
        if self._public is None or self._web is not web:
            found = public_route(self._job_type, self._front, web)
            if found is None:
                raise BadHandler(
                    self._job_type, "its endpoint has no route in the web application; include its router there"
                )
            self._public, self._web, self._twins = found, web, {}
        return self._public

    def _twin(self, path_names: frozenset[str]) -> "_Private":
        """Return the private application for requests with path parameters of these names."""
        public = self.public()
        if path_names not in self._twins:
            private = FastAPI(openapi_url=None, exception_handlers=dict(self._site.web.exception_handlers))
            private.router.route_class = _Twin
            check, shadows = self._declaration.check, public.shadows()
            private.router.add_api_route(
                "/" + "/".join(f"{{{name}}}" for name in sorted(path_names)),
                self._declaration.endpoint,
                dependencies=[Depends(call) for call in (*shadows, *([] if check is None else [check]))],
                **public.arguments,
            )
            ran = dict.fromkeys(shadows, _nothing)
            self._twins[path_names] = _Private(private, private.build_middleware_stack(), ran)
        return self._twins[path_names]


class _Private(NamedTuple):
    """A private application, what runs it, and the dependencies of its route that ran in the request."""

    web: FastAPI
    app: ASGIApp
    ran_in_request: dict[AnyFunction, AnyFunction]


class _Twin(APIRoute):
    """The only route of a private application: it takes every request as it was matched before it was stored."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL, {"endpoint": self.endpoint, "path_params": scope["path_params"], "route": self}

    async def handle(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


def _giving(value: StoredValue) -> AnyFunction:
    """Return a dependency that gives a stored value."""

    async def give(request: Request) -> Any:
        return value.type.validate_python(request.scope[VALUES].get(value.key))

    return give


async def _nothing() -> None: ...


class _Answer:
    """The answer of a twin."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        self._content, self._received = content, False
        self._unread: Exception | None = None  # why a file could not be read
        self._status, self._headers, self._body = 500, dict[str, str](), b""

    async def receive(self) -> Message:
        if self._received:
            await asyncio.Event().wait()  # the caller of a replayed request never leaves
        try:
            chunk = await anext(self._content, None)
        except Exception as problem:
            self._unread = problem
            raise
        self._received = chunk is None
        return {"type": "http.request", "body": chunk or b"", "more_body": not self._received}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self._body += message.get("body", b"")

    def result(self) -> Any:
        """Return the body, or raise the signal for the worker. The detail of the signal is what the result route answers."""
        if self._unread is not None:
            raise self._unread  # FastAPI blames the caller for it
        if self._status < 400:
            return self._json()
        said = f"the endpoint answered {self._status}"
        detail = msgspec.json.encode({"status": self._status, "body": self._json()}).decode()
        if self._status < 500:
            raise Fail(said, detail=detail)
        seconds = self._headers.get("retry-after", "")
        raise Retry(said, detail=detail, after=f"{seconds}s" if seconds.isdecimal() else None)

    def _json(self) -> Any:
        if not self._body:
            return None
        kind = self._headers.get("content-type", "").partition(";")[0]
        if not kind.endswith("json"):
            raise Fail(_UNDECODED.format(kind or "no content type"))
        return msgspec.json.decode(self._body)
