"""The parts of an operation: the call it gets, its answer, and its entry in the table of routes."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from ...app import Demora
from ...client.client import Client
from ...core.access import ApiKey, Scope
from ...wire.requests import Nothing
from ..answers import JSON, PROBLEM, Listing, Reply
from ..budget import Share
from ..reading import ONE_JOB
from ..stopping import Stopping
from ..submitting import Submissions
from ..waiting import WaitLimit

PAGE_BYTES = 4 * 1024 * 1024  # the most payloads, results and errors on one page
LARGE_JOB, PLAIN_JOB = 2 * 1024 * 1024, 16 * 1024  # assumed bytes of one job, with and without payload or result
SEARCH_LIMIT = timedelta(seconds=3)

__all__ = ["JSON", "LARGE_JOB", "PAGE_BYTES", "PLAIN_JOB", "PROBLEM", "SEARCH_LIMIT"]
__all__ += ["ApiCall", "Listing", "Operation", "Reply"]


class MetricsText(Protocol):
    """Writes the metrics of this process and of the database as a text."""

    media: str

    async def text(self, client: Client) -> bytes: ...


class ApiCall(msgspec.Struct):
    """A call of an operation: a request whose path, query and body have been read and have the right types.

    `stopping` says when the service stops, `by` is the name of its key, `share` counts its bytes, `waits` counts the
    requests that wait, and `id` names the request in the log. `base` is the path that the API is mounted at.
    """

    app: Demora
    path: Mapping[str, str]
    headers: Headers
    query: Any
    body: Any
    receive: Receive
    stopping: Stopping
    by: str
    key: ApiKey | None  # None where no key is needed
    may_read: bool
    base: str
    submissions: Submissions
    share: Share
    waits: WaitLimit
    id: str
    metrics: MetricsText | None = None  # None: the extra `metrics` is not installed
    still_allowed: Callable[[], Awaitable[bool]] | None = None  # whether the key is still in force; None: no key is needed
    head_only: bool = False  # the caller asked for the headers of the answer alone

    def client(self) -> Awaitable[Client]:
        return self.app.open()

    def forget_body(self) -> None:
        """Free the body and its bytes of the budget, before an operation waits."""
        self.body = None
        self.share.body(0)


class Operation(msgspec.Struct, frozen=True):
    """One method on one path. `gives` maps each status to the shape of its answer, except for errors."""

    method: str
    path: str
    scope: Scope | None  # that a key must have; None: no key needed
    call: Callable[[ApiCall], Awaitable[Reply]]
    gives: Mapping[int, Any]  # a tuple if there are several possible shapes
    takes: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] = Nothing
    most: int = ONE_JOB
    media: str = JSON  # of its answer, except for errors
    headers: Mapping[str, str] = {}  # headers that a caller may send, and their meanings

    @property
    def name(self) -> str:
        return self.call.__name__

    @property
    def summary(self) -> str:
        return (self.call.__doc__ or "").partition("\n")[0]
