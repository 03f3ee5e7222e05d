"""Reads requests: limits the size of bodies as they arrive, and decodes JSON and queries into checked structs."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from ..core.payload import MOST_DEPTH, misfit
from ..errors import Invalid, TooLarge
from ..wire.problems import BrokenJson, WrongContent
from .budget import Share

ONE_JOB = 1024 * 1024 + 64 * 1024  # bytes of a body
ONE_BATCH = 16 * 1024 * 1024
_MOST_PARAMETERS = 100
_LONGEST_NAME = 100  # of a caller's parameter name in an error
_HALF_A_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?:[^\\]|\\[^u])")
_GZIP = re.compile(r"(?:^|,)[ \t]*(?:x-)?gzip[ \t]*(?:;[ \t]*q=(?:1|0?\.(?!0+(?![0-9]))[0-9]+|1\.0+)[ \t]*)?(?=,|$)")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STRONG_TAG = re.compile(r'(?:^|,)[ \t]*"([!#-~]*)"[ \t]*(?=,|$)')

S = TypeVar("S", bound=msgspec.Struct)


class ClientGone(Exception):
    """The caller has closed the connection."""


async def read_body(headers: Headers, receive: Receive, most: int, share: Share) -> bytes | bytearray:
    """Read the whole body and count it in the share as it arrives.

    Raises `TooLarge` as soon as it is over the limit, whatever Content-Length says.
    """
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and (len(declared) > 15 or int(declared) > most):
        raise _too_large(most)
    body: bytes | bytearray = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part, more = message.get("body", b""), message.get("more_body", False)
        if body:
            body += part
        else:
            body = bytearray(part) if more else part  # most bodies arrive in one part, which is not copied
        if len(body) > most:
            raise _too_large(most)
        share.body(len(body))
    return body


async def disconnected(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def decode_body(body: bytes | bytearray, headers: Headers, shape: type[S]) -> S:
    """Decode the body into a struct. An empty body is the same as `{}` if no field is required."""
    if not body:
        return _without_body(shape)
    _check_content(headers)
    try:
        decoded: S = _decoder(shape).decode(body)
        return decoded
    except RecursionError:
        raise Invalid("payload", f"is nested deeper than {MOST_DEPTH} levels") from None
    except msgspec.ValidationError as problem:
        raise _misfit(problem, shape) from None
    except msgspec.DecodeError as problem:
        raise BrokenJson(_not_json(problem, body)) from None
    except UnicodeDecodeError:
        raise BrokenJson("the body is not valid UTF-8") from None


def decode_query(query: bytes, shape: type[S]) -> S:
    """Decode the query string into a struct. Only list parameters may be repeated."""
    if not query and not _requires(shape):
        return shape()
    try:
        return msgspec.convert(_gathered(_pairs(query), shape), shape, strict=False)
    except msgspec.ValidationError as problem:
        raise _misfit(problem, shape) from None


def read_key(headers: Headers, field: str | None) -> str | None:
    """Return the idempotency key of the header or the field. Raises `Invalid` if they differ."""
    if "idempotency-key" not in headers:
        return field
    given = {raw for name, raw in headers.raw if name == b"idempotency-key"}
    try:
        keys = {raw.decode() for raw in given} | ({field} if field is not None else set())
    except UnicodeDecodeError:
        raise Invalid("idempotencyKey", "the Idempotency-Key header is not valid UTF-8") from None
    if len(keys) > 1:
        raise Invalid("idempotencyKey", "the Idempotency-Key header and the field differ; send only one of them")
    return keys.pop()


def read_traceparent(headers: Headers) -> str | None:
    """Return the trace context of the caller; None if there is none, or if it is not one of version 00 of W3C's form."""
    given = headers.getlist("traceparent")
    return given[0] if len(given) == 1 and _TRACEPARENT.fullmatch(given[0]) else None


def takes_gzip(scope: Scope, headers: Headers) -> bool:
    """Return whether the caller names gzip in Accept-Encoding. HTTP/1.0 has no chunks, so it gets no compressed answer."""
    accepted = ",".join(headers.getlist("accept-encoding")).lower()
    return scope.get("http_version") == "1.1" and _GZIP.search(accepted) is not None


def read_if_match(headers: Headers) -> list[str] | None:
    """Return the tags of the If-Match header; None if there is none, or if it is `*`. A weak tag matches nothing."""
    given = ",".join(headers.getlist("if-match"))
    return None if "if-match" not in headers or given.strip() == "*" else _STRONG_TAG.findall(given)


def _misfit(problem: msgspec.ValidationError, shape: type[msgspec.Struct]) -> Invalid:
    """Return the error of a field, with the meaning and unit of the field from the OpenAPI document."""
    found = misfit(problem)
    meaning = _meaning(shape, found.field)
    return found if meaning is None else Invalid(found.field, f"{found.reason}: {meaning}")


def _meaning(shape: type[msgspec.Struct], path: str) -> str | None:
    """Return the description of the field at a path like `jobs[0].delay`."""
    kind: Any = inspect.type_info(shape)
    for name in path.split("."):
        fields = [field for struct in _structs(kind) for field in struct.fields]
        kind = next((field.type for field in fields if field.encode_name == name.partition("[")[0]), None)
    for one in kind.types if isinstance(kind, inspect.UnionType) else [kind]:
        if isinstance(one, inspect.Metadata) and one.extra_json_schema is not None:
            meaning: str | None = one.extra_json_schema.get("description")
            return meaning
    return None


def _structs(kind: Any) -> list[inspect.StructType]:
    """Return the structs that a value of this type can be, or can hold in a list."""
    if isinstance(kind, inspect.UnionType):
        return [struct for one in kind.types for struct in _structs(one)]
    if isinstance(kind, inspect.Metadata):
        return _structs(kind.type)
    if isinstance(kind, inspect.ListType):
        return _structs(kind.item_type)
    return [kind] if isinstance(kind, inspect.StructType) else []


def _too_large(most: int) -> TooLarge:
    return TooLarge("body", f"is over the limit of {most:,} bytes")


def _without_body(shape: type[S]) -> S:
    if _requires(shape):
        raise BrokenJson("the body is empty; send a JSON object")
    return shape()


def _not_json(problem: msgspec.DecodeError, body: bytes | bytearray) -> str:
    """Explain why a body is not JSON. msgspec reports a lone surrogate near the end as truncation."""
    if "surrogate" in str(problem) or _HALF_A_PAIR.search(body):
        return "text in the body contains a lone surrogate, which is not valid Unicode"
    return f"the body is not JSON: {problem}"


def _check_content(headers: Headers) -> None:
    kind, _, parameters = headers.get("content-type", "").lower().partition(";")
    if kind.strip() != "application/json" or parameters.replace('"', "").strip() not in ("", "charset=utf-8"):
        raise WrongContent("Content-Type", "application/json, in UTF-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongContent("Content-Encoding", "identity")


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise BrokenJson("the query string is not valid UTF-8 or has too many parameters") from None


@cache
def _decoder(shape: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(shape)


@cache
def _requires(shape: type[msgspec.Struct]) -> bool:
    """Return whether a field of the shape must be given."""
    return any(field.required for field in msgspec.structs.fields(shape))


@cache
def _parameters(shape: type[msgspec.Struct]) -> Mapping[str, bool]:
    """Return the names of the parameters of a query, and whether each is a list."""
    return {field.encode_name: field.default_factory is list for field in msgspec.structs.fields(shape)}


def _gathered(pairs: Iterable[tuple[str, str]], shape: type[msgspec.Struct]) -> dict[str, Any]:
    known = _parameters(shape)
    gathered: dict[str, Any] = {}
    for name, value in pairs:
        if name not in known:
            raise Invalid(name[:_LONGEST_NAME], "is not a known parameter")
        if known[name]:
            gathered.setdefault(name, []).append(value)
        elif name in gathered:
            raise Invalid(name, "is given more than once")
        else:
            gathered[name] = value
    return gathered
