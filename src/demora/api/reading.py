"""Reading requests: bodies by a streamed count, JSON and queries into checked structs, or an error that says why not."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.datastructures import Headers
from starlette.types import Receive

from ..core.payload import MOST_DEPTH, misfit
from ..errors import Invalid, TooLarge
from .budget import Share
from .problems import BrokenJson, WrongContent

ONE_JOB = 1024 * 1024 + 64 * 1024  # bytes of a body
ONE_BATCH = 16 * 1024 * 1024
_MOST_PARAMETERS = 100
_LONGEST_NAME = 100  # of what a caller named, told back
_HALF_A_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?:[^\\]|\\[^u])")

S = TypeVar("S", bound=msgspec.Struct)


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def read_body(headers: Headers, receive: Receive, most: int, share: Share) -> bytearray:
    """The whole body, counted in the share as it arrives. What is over the limit is refused as soon as it is known, whatever
    Content-Length says."""
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and (len(declared) > 15 or int(declared) > most):
        raise _too_large(most)
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        share.body(len(body))
        more = message.get("more_body", False)
    return body


async def disconnected(receive: Receive) -> None:
    """Return when the caller is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def decode_body(body: bytes | bytearray, headers: Headers, shape: type[S]) -> S:
    """The body as a struct; no body at all is the same as `{}` where no field is required."""
    if not body:
        return _without_body(shape)
    _check_content(headers)
    try:
        return msgspec.json.decode(body, type=shape)
    except RecursionError:
        raise Invalid("payload", f"is nested deeper than {MOST_DEPTH} levels") from None
    except msgspec.ValidationError as problem:
        raise _misfit(problem, shape) from None
    except msgspec.DecodeError as problem:
        raise BrokenJson(_not_json(problem, body)) from None
    except UnicodeDecodeError:
        raise BrokenJson("the body is not valid UTF-8") from None


def decode_query(query: bytes, shape: type[S]) -> S:
    """The query string as a struct. Only lists may be given more than once."""
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise BrokenJson("the query string is not valid UTF-8, or has too many parameters") from None
    try:
        return msgspec.convert(_gathered(pairs, shape), shape, strict=False)
    except msgspec.ValidationError as problem:
        raise _misfit(problem, shape) from None


def read_key(headers: Headers, field: str | None) -> str | None:
    """The idempotency key, by header or by field; refuses two that differ."""
    given = {raw for name, raw in headers.raw if name == b"idempotency-key"}
    try:
        keys = {raw.decode() for raw in given} | ({field} if field is not None else set())
    except UnicodeDecodeError:
        raise Invalid("idempotencyKey", "the Idempotency-Key header is not valid UTF-8") from None
    if len(keys) > 1:
        raise Invalid("idempotencyKey", "the Idempotency-Key header and the field differ; give one, or the same twice")
    return keys.pop() if keys else None


def _misfit(problem: msgspec.ValidationError, shape: type[msgspec.Struct]) -> Invalid:
    """What does not fit, and what the field means where the OpenAPI document says so: with that, its unit."""
    found = misfit(problem)
    meaning = _meaning(shape, found.field)
    return found if meaning is None else Invalid(found.field, f"{found.reason}: {meaning}")


def _meaning(shape: type[msgspec.Struct], path: str) -> str | None:
    """The description of the field at a path like `jobs[0].delay`."""
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
    """The structs that a value of this kind may be, or hold in a list."""
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
    if any(field.required for field in msgspec.structs.fields(shape)):
        raise BrokenJson("the body is empty; send a JSON object")
    return shape()


def _not_json(problem: msgspec.DecodeError, body: bytes | bytearray) -> str:
    """What is wrong with the body. Of half a surrogate pair near its end msgspec says that the body is truncated."""
    if "surrogate" in str(problem) or _HALF_A_PAIR.search(body):
        return "text in the body contains a lone surrogate, which is not valid Unicode"
    return f"the body is not JSON: {problem}"


def _check_content(headers: Headers) -> None:
    kind, _, parameters = headers.get("content-type", "").lower().partition(";")
    if kind.strip() != "application/json" or parameters.replace('"', "").strip() not in ("", "charset=utf-8"):
        raise WrongContent("Content-Type", "application/json, in UTF-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongContent("Content-Encoding", "identity")


def _gathered(pairs: Iterable[tuple[str, str]], shape: type[msgspec.Struct]) -> dict[str, Any]:
    known = {field.encode_name: field.default_factory is list for field in msgspec.structs.fields(shape)}
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
