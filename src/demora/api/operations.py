"""What an operation of the API is: how it is asked, what it answers, and all that the OpenAPI document says of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from ..app import Demora
from ..client.client import Client
from ..core.access import ApiKey, Scope
from .answers import JSON, PROBLEM, Listing, Reply
from .budget import Share
from .reading import ONE_JOB
from .requests import Nothing
from .submitting import Submissions

WITHOUT_KEY = "http"  # who asks where no key is needed
PAGE_BYTES = 4 * 1024 * 1024  # of payloads, results and errors on one page, which ends before there are more
LARGE_JOB, PLAIN_JOB = 2 * 1024 * 1024, 16 * 1024  # bytes to reckon with for a job on it, with payload or result or without
SEARCH_LIMIT = timedelta(seconds=3)

__all__ = ["JSON", "LARGE_JOB", "PAGE_BYTES", "PLAIN_JOB", "PROBLEM", "SEARCH_LIMIT", "WITHOUT_KEY"]
__all__ += ["Ask", "Listing", "Operation", "Reply"]


class Ask(msgspec.Struct, frozen=True):
    """A request with its path, query and body checked for their types. `stopping` is set when the service shuts down;
    `by` is the name of the key that it came with; `share` counts the bytes that it holds."""

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
    share: Share

    async def client(self) -> Client:
        return await self.app.open()


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
