"""What went wrong, for the wire: one table from error to status, and problem+json (RFC 9457) that names the field.

A problem carries no stack, SQL, path or payload: what a caller did not cause is described in fixed sentences.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .. import errors as demora
from ..core.access import Scope


class Refused(Exception):
    """The root of what only HTTP can refuse."""


class BrokenJson(Refused):
    """The body, or the query, is not text that can be read."""


class WrongContent(Refused):
    """The body is not declared as JSON."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"send the body as JSON: {name} must be {wanted}")


class NoRoute(Refused):
    """Nothing is served at this path."""

    def __init__(self) -> None:
        super().__init__("nothing is served here; GET /api/v1/openapi.json lists every route")


class WrongMethod(Refused):
    """The path is served, but not with this method."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"this path takes {', '.join(allowed)}")
        self.allowed = allowed


class WrongHost(Refused):
    """The Host header names none of ours: perhaps a web page that rebinds its name to this address."""

    def __init__(self) -> None:
        super().__init__("the Host header names no host that is served here; the setting DEMORA_ALLOWED_HOSTS adds names")


class CrossSite(Refused):
    """A web page of another site tries to change something."""

    def __init__(self) -> None:
        super().__init__("web pages of other sites may not change anything here")


class NoKey(Refused):
    """A key is needed, and none is presented."""

    challenge = 'Bearer realm="demora"'

    def __init__(self) -> None:
        super().__init__("an API key is needed: send Authorization: Bearer dmr_…; demora keys create makes one")


class BadKey(Refused):
    """What is presented is no key in force. Which of the possible reasons it is, is nobody's business."""

    challenge = 'Bearer realm="demora", error="invalid_token"'

    def __init__(self) -> None:
        super().__init__(
            "this API key is not valid: unknown, revoked or expired, or not sent as Authorization: Bearer dmr_…"
        )


class WrongScope(Refused):
    """The key is good, but not for this."""

    def __init__(self, needed: Scope) -> None:
        super().__init__(f"this API key may not do that: it needs the scope {needed}")
        self.challenge = f'Bearer realm="demora", error="insufficient_scope", scope="{needed}"'


class TooManyRequests(Refused):
    """The key has made more requests than it may."""

    def __init__(self, wait: float) -> None:
        super().__init__("this API key makes too many requests; Retry-After says when to try again")
        self.retry_after = math.ceil(wait)


class TooManyFailures(Refused):
    """Too many requests of this address came without a key, or with one that is not valid."""

    def __init__(self, wait: float) -> None:
        super().__init__(
            "too many requests of this address had no valid API key; Retry-After says when to try again. A valid key is let "
            "in at any time"
        )
        self.retry_after = math.ceil(wait)


class Overloaded(Refused):
    """Requests and answers that are under way hold as many bytes as they may."""

    def __init__(self) -> None:
        super().__init__(
            "too much is being sent and answered at the moment, and nothing was done; try again in a second, with less at a "
            "time. DEMORA_IN_FLIGHT_BYTES is the limit"
        )


class Kind(NamedTuple):
    """How an error is told. With no `detail` the error's own sentence is used."""

    status: int
    title: str
    detail: str | None = None
    field: str | None = None
    retry_after: int | None = None

    @property
    def type(self) -> str:
        """A name for programs, made of the title."""
        return "urn:demora:problem:" + re.sub(r"\W+", "-", self.title.lower())


_UNKNOWN = Kind(500, "Unexpected error", "something went wrong here that should not; the log of the service says where")
_STORE = Kind(
    503, "The store does not answer", "the database could not be reached or refused; look before you repeat a write"
)
_AWAY = Kind(503, "The store is away", "the database could not be reached; nothing was written, try again", retry_after=1)
_BUSY = Kind(503, "The store is busy", "the database stayed locked; nothing was written, try again", retry_after=1)
_LOST = Kind(
    503, "The database is damaged", "the files of the database were changed by another program; nothing was written"
)

KINDS: dict[type[Exception], Kind] = {
    demora.DemoraError: _UNKNOWN,
    demora.Invalid: Kind(422, "Invalid value"),
    demora.TooLarge: Kind(413, "Too large"),
    demora.BadSetting: _UNKNOWN,
    demora.CannotListen: _UNKNOWN,
    demora.BadHandler: _UNKNOWN,
    demora.ProcessDied: _UNKNOWN,
    demora.RaisedInProcess: _UNKNOWN,
    demora.WrongProcess: _UNKNOWN,
    demora.WorkerDied: _UNKNOWN,
    demora.UnknownJobType: Kind(422, "Unknown job type", field="type"),
    demora.JobNotFound: Kind(404, "No such job"),
    demora.WrongState: Kind(409, "Wrong state"),
    demora.KeyReused: Kind(422, "Idempotency key reused", field="idempotencyKey"),
    demora.ApiKeyNotFound: Kind(404, "No such API key"),
    demora.ApiKeyInForce: Kind(409, "API key in force"),
    demora.ApiKeyNotInForce: Kind(409, "API key not in force"),
    demora.NotAllowedForKey: Kind(403, "Queue or type not allowed"),
    demora.LimitReached: Kind(403, "Limit of the API key reached"),
    demora.TooManyWaiting: Kind(429, "Too many waiting jobs", retry_after=1),
    demora.SecretNotFound: Kind(404, "No such secret"),
    demora.UrlNotDisabled: Kind(409, "URL not disabled"),
    demora.QueueNotFound: Kind(404, "No such queue"),
    demora.NotRead: _UNKNOWN,
    demora.StillRunning: Kind(409, "Still running"),
    demora.JobFailed: Kind(409, "The job failed"),
    demora.WouldBlock: _UNKNOWN,
    demora.StoreError: _STORE,
    demora.StoreUnreachable: _AWAY,
    demora.StoreBusy: _BUSY,
    demora.SearchTooSlow: Kind(422, "Search too slow"),
    demora.TooManySearches: Kind(503, "Too many searches", retry_after=2),
    demora.StoreGone: _LOST,
    demora.StoreDamaged: _LOST,
    demora.StoreClosed: _STORE,
    demora.OneLoopOnly: _STORE,
    demora.OpenInParent: _STORE,
    demora.SchemaTooNew: _STORE,
    BrokenJson: Kind(400, "Broken request"),
    WrongContent: Kind(415, "Wrong content type"),
    NoRoute: Kind(404, "No such route"),
    WrongMethod: Kind(405, "Wrong method"),
    WrongHost: Kind(421, "Wrong host"),
    CrossSite: Kind(403, "Cross-site request"),
    NoKey: Kind(401, "API key needed"),
    BadKey: Kind(401, "API key not valid"),
    WrongScope: Kind(403, "API key not allowed"),
    TooManyRequests: Kind(429, "Too many requests"),
    TooManyFailures: Kind(429, "Too many failed authentications"),
    Overloaded: Kind(503, "Too much in flight", retry_after=1),
}


class FieldProblem(msgspec.Struct, frozen=True):
    """A field of the request, and what is wrong with it."""

    field: str
    reason: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as RFC 9457 writes it. `field` and `errors` are there if a field is to blame."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[FieldProblem] = []


def kind_of(error: Exception) -> Kind:
    """How to tell this error: as itself, or as the nearest of its parents that is in the table."""
    return next((KINDS[parent] for parent in type(error).__mro__ if parent in KINDS), _UNKNOWN)


def problem_of(error: Exception) -> Problem:
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
    )


def as_sent(problem: demora.Invalid) -> demora.Invalid:
    """The same, the field named as callers of the API write it. Inside a payload names are theirs."""
    own, payload, inside = problem.field.partition("payload")
    sent = _NAME.sub(lambda name: _SENT.get(name[0]) or _camel(name[0]), own)
    return type(problem)(sent + payload + inside, problem.reason)


# What the arguments of the client are called over HTTP; all others only lose their underscores.
_SENT = {"at": "scheduledAt", "key": "idempotencyKey", "after": "cursor"}
_NAME = re.compile(r"\w+")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def headers_of(error: Exception) -> dict[str, str]:
    kind = kind_of(error)
    headers = {} if kind.retry_after is None else {"retry-after": str(kind.retry_after)}
    if isinstance(error, TooManyRequests | TooManyFailures):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, NoKey | BadKey | WrongScope):
        headers["www-authenticate"] = error.challenge
    return headers | {"allow": ", ".join(error.allowed)} if isinstance(error, WrongMethod) else headers


def _blamed(error: Exception, kind: Kind) -> FieldProblem | None:
    if isinstance(error, demora.Invalid):
        return FieldProblem(_short(error.field), _short(error.reason))
    if isinstance(error, demora.NotAllowedForKey | demora.LimitReached):
        return FieldProblem(error.field, _short(str(error)))
    if isinstance(error, demora.KeyReused) and error.job is not None:
        return FieldProblem(f"jobs[{error.job}].{kind.field}", str(error))
    return None if kind.field is None else FieldProblem(kind.field, _short(str(error)))


def _short(text: str) -> str:
    return text if len(text) <= 500 else text[:499] + "…"
