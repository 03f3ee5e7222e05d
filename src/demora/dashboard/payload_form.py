"""A form for the payload of a job, made from the annotations of its handler by way of their JSON Schema."""

import inspect
import json
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.payload import unpack
from ..errors import Invalid
from ..handlers.registry import Handler

PREFIX = "field."  # of the names of the fields in the form
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "boolean"}


class PayloadField(msgspec.Struct, frozen=True):
    """A field of a payload: how it is asked for (text, number, boolean, choice or json), its default as text, and whether it
    must be given."""

    name: str
    kind: str
    required: bool
    default: str = ""
    choices: tuple[str, ...] = ()
    whole: bool = False


def payload_fields(handler: Handler) -> list[PayloadField]:
    """Return the fields of a handler's payload, in the order of its parameters."""
    hints = typing.get_type_hints(handler.function, include_extras=True)
    parameters = inspect.signature(handler.function).parameters
    return [_field(name, hints.get(name, Any), parameters[name].default) for name in handler.field_names]


def read_payload(fields: list[PayloadField], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the payload that a form means. Fields that are left empty have the default of the handler."""
    payload: dict[str, Any] = {}
    for field in fields:
        text = form.get(PREFIX + field.name, "")
        if text or (field.required and field.kind == "text"):
            payload[field.name] = _value(field, text)
    return payload


def _field(name: str, hint: Any, default: Any) -> PayloadField:
    schema, required = _schema(hint), default is inspect.Parameter.empty
    choices = tuple(str(one) for one in schema.get("enum", ()) if isinstance(one, str))
    kind = "choice" if choices else _KINDS.get(schema.get("type", ""), "json")
    return PayloadField(name, kind, required, _shown(default, kind), choices, schema.get("type") == "integer")


def _schema(hint: Any) -> Mapping[str, Any]:
    try:
        schema = msgspec.json.schema(hint)
    except (TypeError, RuntimeError):  # a type of another library
        return {}
    reference = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = schema.get("$defs", {}).get(reference, schema)
    return found


def _shown(default: Any, kind: str) -> str:
    if default is inspect.Parameter.empty or default is None:
        return ""
    try:
        text = msgspec.json.encode(default).decode()
    except (TypeError, ValueError):
        return ""
    return json.loads(text) if kind in ("text", "choice") and text.startswith('"') else text


def _value(field: PayloadField, text: str) -> Any:
    if field.kind in ("text", "choice"):
        return text
    try:
        return unpack(text.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        wanted = {"number": "a number", "boolean": "true or false"}.get(field.kind, "JSON")
        raise Invalid(field.name, f"must be {wanted}") from None
