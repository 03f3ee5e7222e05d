"""The problems of a service as the exceptions that the same verb raises on a database."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .. import errors
from ..api.problems import KINDS, Problem
from ..errors import DemoraError, Invalid, KeyReused, ServiceRefused, StoreError, StoreUnreachable

_SHARED = {kind.type for kind in KINDS.values() if sum(other.type == kind.type for other in KINDS.values()) > 1}
_CLASSES: dict[str, type[DemoraError]] = {
    kind.type: error
    for error, kind in KINDS.items()
    if issubclass(error, DemoraError) and (kind.type not in _SHARED or error in (StoreError, errors.StoreGone))
}
_ARGUMENTS = {"scheduledAt": "at", "idempotencyKey": "key", "cursor": "after"}  # all others only become snake_case
_NAME = re.compile(r"\w+")
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
            "body" if blamed is None else _argument(blamed.field), problem.detail if blamed is None else blamed.reason
        )
    error = kind.__new__(kind, problem.detail)
    named = {} if blamed is None else {"field": blamed.field}
    states = {} if problem.job_status is None else {"status": problem.job_status}
    error.__dict__ |= {**named, **states, **facts}
    if kind is StoreUnreachable:
        error.__dict__["may_pass"] = True
    if kind is KeyReused:
        nth = None if blamed is None else _NTH.match(blamed.field)
        error.__dict__["job"] = None if nth is None else int(nth[1])
    return error


def _argument(field: str) -> str:
    """Return the name of a Python argument for a field of a body. Names inside a payload belong to the caller and stay."""
    own, payload, inside = field.partition("payload")
    return _NAME.sub(lambda name: _ARGUMENTS.get(name[0]) or _snake(name[0]), own) + payload + inside


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
