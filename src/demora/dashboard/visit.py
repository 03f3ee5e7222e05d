"""One request for a page or an action, and the answers that the pages give."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from ..api.submitting import Submissions
from ..app import Demora
from ..client.client import Client
from ..client.shared import SharedReads
from ..core.access import Scope
from ..core.job import Job
from .access import Visitor

T = TypeVar("T")

PATIENCE = 0.02  # seconds that a page waits for all of its slow reads together, if there are older values to show
FIRST_PATIENCE = 0.5  # the same where there are none: then it says that they are being read

Redact = Callable[[Job, str, Any], Any]  # from a job, "payload" or "result", and its value, to the value that is shown


@lru_cache(2048)  # a page of a list has some hundred links, most of them to jobs and queues that it had before
def address(base: str, *parts: str, **query: Any) -> str:
    """Return the address of a page below `base`, with its parts and its query quoted. None and empty values are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    path = "".join(f"/{quote(part, safe='')}" for part in parts)
    return (f"{base}{path}" or "/") + (f"?{urlencode(given)}" if given else "")


def whole_number(text: str) -> int | None:
    """Return the number that a text of up to 18 digits means; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


class Visit(msgspec.Struct):
    """A request by a visitor who may make it. `form` holds the fields of an action."""

    app: Demora
    client: Client
    request: Request
    visitor: Visitor
    base: str  # the path that the dashboard is mounted at
    token: str  # what forms must repeat
    path: Mapping[str, str]
    form: Mapping[str, str]
    shared: SharedReads
    submissions: Submissions
    now: datetime
    began: float  # by the clock of the event loop
    redact: Redact | None = None

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def patience(self) -> float:
        """The seconds that this page may still wait for slow reads that have an older value."""
        return max(0.0, self.began + PATIENCE - asyncio.get_running_loop().time())

    async def read_soon(self, name: str, seconds: float, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return a value that all pages share, or an older one if reading takes long. None if there is no older one either:
        the page says so, and is told when the value is there."""
        first = max(0.0, self.began + FIRST_PATIENCE - asyncio.get_running_loop().time())
        return await self.shared.get_soon(name, seconds, read, patience=self.patience, first=first)

    @property
    def by(self) -> str:
        return self.visitor.by

    def redacted(self, job: Job, field: str) -> bytes | None:
        """Return the payload or the result of a job as JSON, as the hook of the host application lets people see it."""
        text = job.payload_json if field == "payload" else job.result_json
        if text is None or self.redact is None:
            return text
        return msgspec.json.encode(self.redact(job, field, msgspec.json.decode(text)))

    def may(self, scope: Scope | str) -> bool:
        return self.visitor.allows(Scope(scope))

    def link(self, *parts: str, **query: Any) -> str:
        """Return the address of a page from the parts of its path: `link("jobs", id)`."""
        return address(self.base, *parts, **query)


class View(msgspec.Struct, frozen=True):
    """An answer that a template draws."""

    template: str
    values: Mapping[str, Any] = {}
    status: int = 200
    headers: Mapping[str, str] = {}


class Acted(msgspec.Struct, frozen=True):
    """The answer to an action: what was done, in words, and the page to go to if the present one is gone.

    `undo` is the address of an action that takes it back, and `at` the time that the words name as `{at}`.
    """

    words: str
    go: str | None = None
    undo: str | None = None
    at: datetime | None = None


PageAnswer = View | Acted | Response
PageHandler = Callable[[Visit], Awaitable[PageAnswer]]


class Route(msgspec.Struct, frozen=True):
    """A page (GET) or an action (POST) at a path, and the scope that it needs."""

    method: str
    path: str
    scope: Scope
    call: PageHandler


class NoPage(Exception):
    """There is no page at this path."""

    def __init__(self) -> None:
        super().__init__("there is no page at this address")
