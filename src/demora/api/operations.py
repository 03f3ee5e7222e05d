"""What an operation of the API is: how it is asked, what it answers, and all that the OpenAPI document says of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive

from ..app import Demora
from ..client import Client
from ..core.access import ApiKey, Scope
from .reading import ONE_JOB
from .submitting import Submissions
from .wishes import Nothing

WITHOUT_KEY = "http"  # who asks where no key is needed
JSON, PROBLEM = "application/json", "application/problem+json"


class Ask(msgspec.Struct, frozen=True):
    """A request with its path, query and body checked for their types. `stopping` is set when the service shuts down;
    `by` is the name of the key that it came with."""

    app: Demora
    path: Mapping[str, str]
    headers: Headers
    query: Any
    body: Any
    receive: Receive
    stopping: asyncio.Event
    by: str
    key: ApiKey | None  # None where no key is needed
    submissions: Submissions

    async def client(self) -> Client:
        return await self.app.open()


class Reply(msgspec.Struct, frozen=True):
    """An answer: a status, a value to be written as JSON unless None, and headers."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = {}
    media: str = JSON

    def response(self) -> Response:
        content = b"" if self.value is None else msgspec.json.encode(self.value)
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **self.headers}
        return Response(content, self.status, headers, None if self.value is None else self.media)


class Operation(msgspec.Struct, frozen=True):
    """One method on one path. `gives` says what each status is answered with; errors are problems, and not listed."""

    method: str
    path: str
    scope: Scope | None  # that a key must have; None: everybody may, without a key
    call: Callable[[Ask], Awaitable[Reply]]
    gives: Mapping[int, Any]  # a tuple where it can be one of several shapes
    takes: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] = Nothing
    most: int = ONE_JOB
    headers: Mapping[str, str] = {}  # that a caller may send, and what each means

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def summary(self) -> str:
        return (self.call.__doc__ or "").partition("\n")[0]
