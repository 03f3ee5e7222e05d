"""Payloads and results as JSON: which values a store accepts, the same on every engine."""

import re
from math import isfinite
from typing import Any

import msgspec

from ..errors import Invalid, TooLarge

MOST_BYTES = 1024 * 1024
MOST_DEPTH = 32
_INT64 = range(-(2**63), 2**63)


def _model(value: Any) -> Any:
    """Return a pydantic model as plain JSON values, by which the model can be read again. msgspec knows no such models."""
    if not hasattr(type(value), "model_dump"):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump(mode="json", by_alias=True, round_trip=True)


_encode = msgspec.json.Encoder(enc_hook=_model).encode
_decode = msgspec.json.Decoder().decode

_NAMED = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_ECHO = re.compile(r"(Invalid (?:enum )?value) .*", re.DOTALL)


def pack(value: Any, field: str) -> bytes:
    """Return `value` as JSON text. Refuses values that some engine or language could not return unchanged: NaN and
    infinities, integers beyond 64 bits, NUL, lone surrogates, keys that are not text, more than 32 levels or 1 MiB."""
    _check(value, field, 1)
    packed = _encode(value)
    if len(packed) > MOST_BYTES:
        raise TooLarge(field, f"is {len(packed):,} bytes as JSON; at most {MOST_BYTES:,} are allowed")
    return packed


def pack_object(value: Any, field: str) -> bytes:
    """Return a payload, which must be a JSON object, as `pack` does."""
    if not isinstance(value, dict):
        value = _builtins(value, field)
        if not isinstance(value, dict):
            raise Invalid(field, f"must be a JSON object, not {type(value).__name__}")
    return pack(value, field)


def unpack(packed: bytes) -> Any:
    return _decode(packed)


UNKNOWN_FIELD = "is not a known field"


def misfit(problem: Exception, root: str = "") -> Invalid:
    """Return an error of msgspec as `Invalid`, which names the field and repeats no value."""
    reason, _, where = str(problem).partition(" - at `$")
    field = root + where.removesuffix("`").partition("[...]")[0]
    if named := _NAMED.fullmatch(reason):
        field = f"{field}.{named[2][:100]}"
        reason = "is required" if named[1] == "missing required" else UNKNOWN_FIELD
    return Invalid(field.removeprefix(".") or "body", _ECHO.sub(r"\1", reason))


def check_text(value: str, field: str) -> None:
    """Refuse text that some engine cannot store."""
    if "\0" in value:
        raise Invalid(field, "text contains a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Invalid(field, "text contains a lone surrogate, which is not valid Unicode") from None


def _check(value: Any, field: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        check_text(value, field)
    elif kind is dict:
        _check_depth(field, depth)
        for key, inner in value.items():
            if type(key) is not str:
                raise Invalid(field, f"object keys must be text, not {type(key).__name__}")
            if "\0" in key or not key.isascii():  # plain keys and texts, the usual case, take no call
                check_text(key, field)
            if type(inner) is str:
                if "\0" in inner or not inner.isascii():
                    check_text(inner, field)
            else:
                _check(inner, field, depth + 1)
    elif kind is list or kind is tuple:
        _check_depth(field, depth)
        for inner in value:
            _check(inner, field, depth + 1)
    elif kind is float:
        if not isfinite(value):
            raise Invalid(field, "numbers must be finite: NaN and infinities are not JSON")
    elif kind is int:
        if value not in _INT64:
            raise Invalid(field, "integers must fit in 64 bits; send larger ones as text")
    elif value is not None and kind is not bool:
        _check(_builtins(value, field), field, depth)


def _check_depth(field: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise Invalid(field, f"is nested deeper than {MOST_DEPTH} levels")


def _builtins(value: Any, field: str) -> Any:
    """Return dataclasses, structs, pydantic models, datetimes, enums and the like as plain JSON values."""
    try:
        return msgspec.to_builtins(value, enc_hook=_model)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Invalid(field, f"cannot be written as JSON: {problem}") from None
