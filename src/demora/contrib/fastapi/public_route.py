"""Reads the route through which an endpoint is called: what its answer may contain, and how its body is laid out.

The worker answers with the response model of the route. Otherwise the result would have fields that the route leaves out.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastapi import FastAPI, params, routing
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant, get_typed_signature
from fastapi.responses import JSONResponse
from starlette.routing import Mount

from ...errors import BadHandler
from .declaration import AnyFunction
from .routes import JobStatus

_COPIED = (
    "response_model_include",
    "response_model_exclude",
    "response_model_by_alias",
    "response_model_exclude_unset",
    "response_model_exclude_defaults",
    "response_model_exclude_none",
    "strict_content_type",  # only newer versions of FastAPI have it
)


class PublicRoute:
    """What the worker needs of the route of an endpoint: arguments of the twin, and dependencies that ran already."""

    def __init__(self, route: Any) -> None:
        self.arguments = {name: _plain(getattr(route, name)) for name in _COPIED if hasattr(route, name)}
        if route.response_model is not JobStatus:  # of the front: the annotation of the endpoint counts
            self.arguments["response_model"] = route.response_model
        if not isinstance(route.response_class, DefaultPlaceholder):
            self.arguments["response_class"] = route.response_class
        self.answers_json = issubclass(_plain(route.response_class), JSONResponse)
        # Only those that take a part of the body: then FastAPI expects the parts by name in both places.
        self._sharing = [call for call in _calls(route.dependencies) if _takes_body(get_dependant(path="/", call=call))]

    def agrees(self, other: "PublicRoute") -> bool:
        return (self.arguments, self._sharing) == (other.arguments, other._sharing)

    def shadows(self) -> list[AnyFunction]:
        """Return functions with the parameters of the dependencies that share the body."""
        return [_shadow(call) for call in self._sharing]


def public_route(job_type: str, front: AnyFunction, web: FastAPI) -> PublicRoute | None:
    """Return the route of an endpoint, None if the web application has none.

    `BadHandler` if it has several that differ, since a stored request does not say which of them it came through, or if the
    route does not answer with JSON.
    """
    found = [PublicRoute(route) for route in _routes_of(web.routes) if _calls_front(route, front)]
    if not all(found[0].agrees(route) for route in found):
        raise BadHandler(job_type, "its routes differ in their response model or body; write an endpoint for each of them")
    if found and not found[0].answers_json:
        raise BadHandler(job_type, "the result of a job is JSON: give its route response_class=JSONResponse")
    return found[0] if found else None


def _routes_of(routes: Sequence[Any]) -> Iterator[Any]:
    """Yield the routes of an application, also those of its routers and of applications mounted in it."""
    # In newer versions of FastAPI a router stays one route, and the options of its inclusion are in contexts of its routes.
    contexts: Callable[[Sequence[Any]], Iterator[Any]] = getattr(routing, "iter_route_contexts", iter)
    for route in contexts(routes):
        inside = getattr(route, "original_route", route)
        if isinstance(inside, Mount):
            yield from _routes_of(inside.routes or ())
        elif isinstance(inside, routing.APIRoute):
            yield route


def _calls_front(route: Any, front: AnyFunction) -> bool:
    """Return whether the route calls the front of an endpoint, perhaps inside other decorators."""
    call = route.endpoint
    while call is not None and call is not front:
        call = getattr(call, "__wrapped__", None)
    return call is front


def _calls(dependencies: Sequence[params.Depends]) -> Iterator[AnyFunction]:
    return (depends.dependency for depends in dependencies if depends.dependency is not None)


def _takes_body(dependant: Dependant) -> bool:
    return bool(dependant.body_params) or any(map(_takes_body, dependant.dependencies))


def _shadow(call: AnyFunction) -> AnyFunction:
    async def shadow(**ran: Any) -> None: ...

    own = get_typed_signature(call).parameters.values()
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    shadow.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return shadow


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, DefaultPlaceholder) else value
