"""The problems of a service as the exceptions that the same verb raises on a database."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .. import errors
from ..errors import (
    DemoraError,
    Invalid,
    KeyReused,
    LimitReached,
    NotAllowedForKey,
    ServiceRefused,
    StoreError,
    StoreUnreachable,
    UnknownJobType,
    WrongState,
)
from ..wire.names import as_argument
from ..wire.problems import KINDS, Problem

_SHARED = {kind.type for kind in KINDS.values() if sum(other.type == kind.type for other in KINDS.values()) > 1}
_CLASSES: dict[str, type[DemoraError]] = {
    kind.type: error
    for error, kind in KINDS.items()
    if issubclass(error, DemoraError) and (kind.type not in _SHARED or error in (StoreError, errors.StoreGone))
}
_NTH = re.compile(r"jobs\[(\d+)\]")


def error_of(status: int, body: bytes, facts: Mapping[str, Any]) -> DemoraError:
    """Return the error that an answer means. `facts` become attributes of it.

    A refusal that exists only over HTTP, such as a missing key, is `ServiceRefused`. An answer that is no problem of demora
    comes from a proxy in between.
    """
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        return StoreError(f"the service or a proxy before it answered {status}; a write may or may not have been made")
    blamed = problem.errors[0] if problem.errors else None
    kind = _CLASSES.get(problem.type)
    if kind is None:
        return ServiceRefused(problem.status, problem.type, problem.detail)
    if issubclass(kind, Invalid):
        return kind(
            "body" if blamed is None else as_argument(blamed.field), problem.detail if blamed is None else blamed.reason
        )
    return kind.received(problem.detail, {**_sent(kind, problem), **facts})


def _sent(kind: type[DemoraError], problem: Problem) -> dict[str, Any]:
    """Return the attributes of an error that its problem tells."""
    blamed = problem.errors[0].field if problem.errors else ""
    if issubclass(kind, NotAllowedForKey | LimitReached):
        return {"field": blamed}
    if issubclass(kind, WrongState):
        return {"status": problem.job_status}
    if issubclass(kind, StoreUnreachable):
        return {"may_pass": True}
    if issubclass(kind, KeyReused | UnknownJobType):
        nth = _NTH.match(blamed)
        return {"job": None if nth is None else int(nth[1])}
    return {}
