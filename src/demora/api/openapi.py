"""Builds the OpenAPI 3.1 document from the table of routes and the structs that the routes read and write."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from .. import __version__
from ..wire.problems import Problem
from .operations.operation import JSON, PROBLEM, Operation

_REF = "#/components/schemas/{name}"
_KEY = "key"
_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "dmr_…",
    "description": "Required as soon as any key exists. Each operation names the scope it requires: "
    "operate includes read, admin includes all.",
}


def describe(routes: Sequence[Operation]) -> dict[str, Any]:
    """Return the document of exactly these routes."""
    paths: dict[str, Any] = {}
    for operation in routes:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "demora", "version": __version__, "description": "Run jobs later, and on time."},
        "paths": paths,
        "components": {"schemas": _schemas(routes), "securitySchemes": {_KEY: _SCHEME}},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": [] if operation.scope is None else [{_KEY: [operation.scope.value]}],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_header_parameters(operation)],
        "responses": {str(status): _response(status, gives, operation.media) for status, gives in operation.gives.items()},
    }
    described["responses"]["default"] = {"description": "A problem", "content": _content(Problem, PROBLEM)}
    if operation.takes is not None:
        required = any(field.required for field in msgspec.structs.fields(operation.takes))
        described["requestBody"] = {"required": required, "content": _content(operation.takes)}
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    properties = _components([operation.query])[operation.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in operation.headers.items()
    ]


def _response(status: int, gives: Any, media: str) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    return described if gives is None else described | {"content": _content(gives, media)}


def _content(shape: Any, media: str = JSON) -> dict[str, Any]:
    shapes = shape if isinstance(shape, tuple) else (shape,)
    schemas, _ = msgspec.json.schema_components(shapes, ref_template=_REF)
    return {media: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}}}


def _schemas(routes: Sequence[Operation]) -> Mapping[str, Any]:
    read = [operation.takes for operation in routes if operation.takes is not None]
    written = [gives for operation in routes for gives in operation.gives.values() if gives is not None]
    shapes = [shape for gives in written for shape in (gives if isinstance(gives, tuple) else (gives,))]
    return _components([*read, *shapes, Problem])


def _components(shapes: Sequence[Any]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    return components
