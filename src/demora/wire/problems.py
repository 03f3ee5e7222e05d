"""Errors on the wire: one table from error to status, and problem+json (RFC 9457) that names the field.

A problem contains no traceback, SQL, path or payload. Errors that the caller did not cause have fixed texts.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .. import errors as demora
from ..core.access import Scope
from .names import as_field


class Refused(Exception):
    """The root of the errors that exist only over HTTP: the API and the dashboard raise them."""


class BrokenJson(Refused):
    """The body or the query cannot be read."""


class WrongContent(Refused):
    """The body is not declared as JSON."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"send the body as JSON: {name} must be {wanted}")


class NoRoute(Refused):
    """There is no route for this path."""

    def __init__(self) -> None:
        super().__init__("there is no such route; GET /api/v1/openapi.json lists all routes")


class WrongMethod(Refused):
    """The path exists, but not with this method."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"this path supports only {', '.join(allowed)}")
        self.allowed = allowed


class WrongHost(Refused):
    """The Host header names no allowed host: perhaps a web page that rebinds its name to this address."""

    def __init__(self) -> None:
        super().__init__("the Host header names a host that is not allowed; add it to the setting DEMORA_ALLOWED_HOSTS")


class CrossSite(Refused):
    """A web page of another site sent a request that could change something."""

    def __init__(self) -> None:
        super().__init__("web pages of other sites cannot change anything here")


class NoKey(Refused):
    """An API key is required, and the request has none."""

    challenge = 'Bearer realm="demora"'

    def __init__(self) -> None:
        super().__init__("an API key is required: send Authorization: Bearer dmr_…; demora keys create creates one")


class BadKey(Refused):
    """The presented key is not in force. The answer does not say why, so that a caller cannot probe for keys."""

    challenge = 'Bearer realm="demora", error="invalid_token"'

    def __init__(self) -> None:
        super().__init__(
            "this API key is not valid: it is unknown, revoked or expired, or not sent as Authorization: Bearer dmr_…"
        )


class WrongScope(Refused):
    """The key is valid but lacks the scope of the route."""

    def __init__(self, needed: Scope) -> None:
        super().__init__(f"this API key lacks the scope {needed}")
        self.challenge = f'Bearer realm="demora", error="insufficient_scope", scope="{needed}"'


class NotForCaller(Refused):
    """The host application does not allow this to the caller."""

    def __init__(self, needed: Scope) -> None:
        super().__init__(f"this needs the scope {needed}, which the application does not give you")


class TooManyRequests(Refused):
    """The key is over its request rate."""

    def __init__(self, wait: float) -> None:
        super().__init__("this API key sent too many requests; try again after Retry-After seconds")
        self.retry_after = math.ceil(wait)


class TooManyFailures(Refused):
    """This address sent too many requests without a valid key."""

    def __init__(self, wait: float) -> None:
        super().__init__(
            "too many requests from this address had no valid API key; try again after Retry-After seconds. Requests with a "
            "valid key are always accepted"
        )
        self.retry_after = math.ceil(wait)


class Overloaded(Refused):
    """The requests and answers in flight hold as many bytes as they may."""

    def __init__(self) -> None:
        super().__init__(
            "the service is handling too many bytes at the moment (DEMORA_IN_FLIGHT_BYTES), and nothing was done; try again "
            "in a second, with smaller requests"
        )


class TooManyWaits(Refused):
    """As many requests as allowed already wait for events or for the end of a job."""

    def __init__(self, *, of_key: bool = False) -> None:
        whose = "of this API key " if of_key else ""
        super().__init__(
            f"too many requests {whose}wait for events, jobs or the end of a job: half of DEMORA_HTTP_CONNECTIONS may, and "
            "half of these for one key; try again in some seconds, or ask without waiting"
        )


class ProblemKind(NamedTuple):
    """How an error appears on the wire. Without `detail`, the error's own text is used."""

    status: int
    title: str
    detail: str | None = None
    field: str | None = None
    retry_after: int | None = None

    @property
    def type(self) -> str:
        """A name for programs, derived from the title."""
        return "urn:demora:problem:" + re.sub(r"\W+", "-", self.title.lower())


_UNKNOWN = ProblemKind(500, "Unexpected error", "the service has failed unexpectedly; its log has the details")
_STORE = ProblemKind(
    503,
    "The store does not answer",
    "the database failed; if the request writes, its write may or may not have been made: check before you repeat it",
)
_UNUSED = ProblemKind(
    _STORE.status, _STORE.title, "the service has not opened its database, or cannot use it; nothing was written"
)
_AWAY = ProblemKind(
    503, "The store is away", "the database cannot be reached; nothing was written, try again", retry_after=1
)
_BUSY = ProblemKind(503, "The store is busy", "the database stayed locked; nothing was written, try again", retry_after=1)
_LOST = ProblemKind(503, "The database is damaged", "another program changed the files of the database; nothing was written")

KINDS: dict[type[Exception], ProblemKind] = {
    demora.DemoraError: _UNKNOWN,
    demora.Invalid: ProblemKind(422, "Invalid value"),
    demora.TooLarge: ProblemKind(413, "Too large"),
    demora.BadSetting: _UNKNOWN,
    demora.CannotListen: _UNKNOWN,
    demora.MetricsNotInstalled: ProblemKind(404, "Metrics not installed"),
    demora.BadHandler: _UNKNOWN,
    demora.ProcessDied: _UNKNOWN,
    demora.RaisedInProcess: _UNKNOWN,
    demora.WrongProcess: _UNKNOWN,
    demora.WorkerDied: _UNKNOWN,
    demora.UnknownJobType: ProblemKind(422, "Unknown job type", field="type"),
    demora.JobNotFound: ProblemKind(404, "No such job"),
    demora.ScheduleNotFound: ProblemKind(404, "No such schedule"),
    demora.ScheduleTaken: ProblemKind(409, "Schedule exists"),
    demora.WrongState: ProblemKind(409, "Wrong state"),
    demora.UndoTooLate: ProblemKind(409, "Too late to undo"),
    demora.JobChanged: ProblemKind(412, "Job changed"),
    demora.KeyReused: ProblemKind(422, "Idempotency key reused", field="idempotencyKey"),
    demora.ApiKeyNotFound: ProblemKind(404, "No such API key"),
    demora.ApiKeyInForce: ProblemKind(409, "API key in force"),
    demora.ApiKeyNotInForce: ProblemKind(409, "API key not in force"),
    demora.NotAllowedForKey: ProblemKind(403, "Queue or type not allowed"),
    demora.LimitReached: ProblemKind(403, "Limit of the API key reached"),
    demora.TooManyWaiting: ProblemKind(429, "Too many waiting jobs", retry_after=1),
    demora.SecretNotFound: ProblemKind(404, "No such secret"),
    demora.UrlNotDisabled: ProblemKind(409, "URL not disabled"),
    demora.QueueNotFound: ProblemKind(404, "No such queue"),
    demora.WorkerNotFound: ProblemKind(404, "No such worker"),
    demora.NotRead: _UNKNOWN,
    demora.ListenerTooSlow: _UNKNOWN,
    demora.StillRunning: ProblemKind(409, "Still running"),
    demora.JobFailed: ProblemKind(409, "The job failed"),
    demora.WouldBlock: _UNKNOWN,
    demora.NotOverHttp: _UNKNOWN,
    demora.ServiceRefused: _UNKNOWN,
    demora.StoreError: _STORE,
    demora.StoreUnreachable: _AWAY,
    demora.StoreBusy: _BUSY,
    demora.SearchTooSlow: ProblemKind(422, "Search too slow"),
    demora.TooManySearches: ProblemKind(503, "Too many searches", retry_after=2),
    demora.StoreGone: _LOST,
    demora.StoreDamaged: _LOST,
    demora.WorkerRefused: _UNUSED,
    demora.StoreClosed: _UNUSED,
    demora.OneLoopOnly: _UNUSED,
    demora.OpenInParent: _UNUSED,
    demora.SchemaTooNew: _UNUSED,
    BrokenJson: ProblemKind(400, "Broken request"),
    WrongContent: ProblemKind(415, "Wrong content type"),
    NoRoute: ProblemKind(404, "No such route"),
    WrongMethod: ProblemKind(405, "Wrong method"),
    WrongHost: ProblemKind(421, "Wrong host"),
    CrossSite: ProblemKind(403, "Cross-site request"),
    NoKey: ProblemKind(401, "API key needed"),
    BadKey: ProblemKind(401, "API key not valid"),
    WrongScope: ProblemKind(403, "API key not allowed"),
    NotForCaller: ProblemKind(403, "Not allowed by the application"),
    TooManyRequests: ProblemKind(429, "Too many requests"),
    TooManyFailures: ProblemKind(429, "Too many failed authentications"),
    Overloaded: ProblemKind(503, "Too much in flight", retry_after=1),
    TooManyWaits: ProblemKind(503, "Too many waits", retry_after=5),
}


class FieldProblem(msgspec.Struct, frozen=True):
    """A field of the request and what is wrong with it."""

    field: str
    reason: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in the form of RFC 9457. `field` and `errors` are set if one field caused it, `jobStatus` if the status of a
    job did. `requestId` finds the error in the log of the service."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[FieldProblem] = []
    request_id: str | None = msgspec.field(default=None, name="requestId")
    job_status: str | None = msgspec.field(default=None, name="jobStatus")


def kind_of(error: Exception) -> ProblemKind:
    """Return the entry of the error's class, or of its nearest parent in the table."""
    return next((KINDS[parent] for parent in type(error).__mro__ if parent in KINDS), _UNKNOWN)


def problem_of(error: Exception, request_id: str | None = None) -> Problem:
    """Return the problem that answers this error of a request."""
    kind = kind_of(error)
    detail = _short(kind.detail or str(error))
    blamed = _blamed(error, kind)
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=detail,
        field=blamed.field if blamed else None,
        errors=[blamed] if blamed else [],
        request_id=request_id,
        job_status=error.status if isinstance(error, demora.WrongState) else None,
    )


def as_sent(problem: demora.Invalid) -> demora.Invalid:
    """Rename the field of an error as the API spells it."""
    return type(problem)(as_field(problem.field), problem.reason)


def headers_of(error: Exception) -> dict[str, str]:
    """Return the response headers of an error: Retry-After, WWW-Authenticate, Allow."""
    kind = kind_of(error)
    headers = {} if kind.retry_after is None else {"retry-after": str(kind.retry_after)}
    if isinstance(error, TooManyRequests | TooManyFailures):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, NoKey | BadKey | WrongScope):
        headers["www-authenticate"] = error.challenge
    return headers | {"allow": ", ".join(error.allowed)} if isinstance(error, WrongMethod) else headers


def _blamed(error: Exception, kind: ProblemKind) -> FieldProblem | None:
    if isinstance(error, demora.Invalid):
        return FieldProblem(_short(error.field), _short(error.reason))
    if isinstance(error, demora.NotAllowedForKey | demora.LimitReached):
        return FieldProblem(error.field, _short(str(error)))
    if isinstance(error, demora.KeyReused | demora.UnknownJobType) and error.job is not None:
        return FieldProblem(f"jobs[{error.job}].{kind.field}", _short(str(error)))
    return None if kind.field is None else FieldProblem(kind.field, _short(str(error)))


def _short(text: str) -> str:
    return text if len(text) <= 500 else text[:499] + "…"
