"""Reads payloads and results as the types that a handler is annotated with, and refuses annotations that no JSON fits."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import inspect

from ..core.payload import misfit, unpack
from . import pydantic_types

_FROM_JSON = (str, int, float, bool, list, dict, type(None))
_RIGHT = "a payload is JSON: use builtins, dates, UUIDs, enums, dataclasses, TypedDicts, msgspec structs or pydantic models"


class PayloadReader(Protocol):
    """Reads the payloads of one handler."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields that the handler declares."""
        ...

    def read(self, payload: bytes) -> Any:
        """Return the checked fields of a payload; `Invalid` names a field that does not fit."""
        ...

    def arguments(self, fields: Any, payload: bytes) -> dict[str, Any]:
        """Return what `read` returned as the keyword arguments of the handler."""
        ...


def payload_reader(hints: Mapping[str, Any], defaults: Mapping[str, Any], *, is_open: bool) -> PayloadReader:
    """Return a reader for parameters with these annotations and defaults. An open one accepts further fields.

    If any annotation is pydantic's, pydantic reads the whole payload, otherwise msgspec. `TypeError` says which annotation
    no JSON value fits.
    """
    if any(pydantic_types.is_pydantic(given) for given in (*hints.values(), *defaults.values())):
        return pydantic_types.PydanticReader(hints, defaults, is_open=is_open)
    return _MsgspecReader(hints, defaults, is_open=is_open)


def example_of(hint: Any) -> Any:
    """Return a value that most likely fits an annotation, by its JSON Schema. `TypeError` if it has none."""
    schema: Mapping[str, Any] = msgspec.json.schema(hint)
    reference = schema.get("$ref", "").rpartition("/")[2]
    schema = schema.get("$defs", {}).get(reference, schema)
    if "enum" in schema:
        return schema["enum"][0]
    usual = {"integer": schema.get("minimum", 1), "number": schema.get("minimum", 1.5), "boolean": True, "array": []}
    return {**usual, "object": {}}.get(schema.get("type", ""), "text")


def result_reader(hint: Any) -> Callable[[bytes], Any]:
    """Return a function that reads a stored result as this type; it raises `ValueError` if the result does not fit."""
    if pydantic_types.is_pydantic(hint):
        return pydantic_types.result_reader(hint)
    return msgspec.json.Decoder(hint).decode


class _MsgspecReader:
    """Reads payloads with one msgspec struct of all fields."""

    def __init__(self, hints: Mapping[str, Any], defaults: Mapping[str, Any], *, is_open: bool) -> None:
        for name, hint in hints.items():
            if name not in defaults and (reason := misfits_json(hint)) is not None:
                raise TypeError(f"parameter {name!r}: {reason}")
        fields = [
            (name, hint, _default(defaults[name])) if name in defaults else (name, hint) for name, hint in hints.items()
        ]
        shape = msgspec.defstruct("Payload", fields, forbid_unknown_fields=not is_open, kw_only=True)
        try:
            self._decode = msgspec.json.Decoder(shape).decode
        except TypeError as problem:
            raise TypeError(f"its payload cannot be read from JSON: {problem}") from problem
        self.names, self._open = shape.__struct_fields__, is_open

    def read(self, payload: bytes) -> Any:
        try:
            return self._decode(payload)
        except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as problem:
            raise misfit(problem, "payload") from None

    def arguments(self, fields: Any, payload: bytes) -> dict[str, Any]:
        arguments = msgspec.structs.asdict(fields)
        return unpack(payload) | arguments if self._open else arguments


def _default(value: Any) -> Any:
    """Return a default value for a struct field; a mutable one is copied for each call."""
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=lambda: type(value)(value))
    return value


def misfits_json(hint: Any) -> str | None:
    """Return why no JSON value fits an annotation; None if one may fit."""
    try:
        found = inspect.type_info(hint)
    except TypeError as problem:
        return f"{problem}; {_RIGHT}"
    for inside in _parts(found, set()):
        if isinstance(inside, inspect.CustomType) and not _takes_builtins(inside.cls):
            return f"no JSON value is a {getattr(inside.cls, '__name__', inside.cls)}; {_RIGHT}"
    return None


def _parts(found: Any, seen: set[int]) -> Iterator[inspect.Type]:
    """Yield a type and all types inside it, each once: a dataclass may contain itself."""
    if isinstance(found, tuple | list):
        for one in found:
            yield from _parts(one, seen)
    elif isinstance(found, inspect.Type | inspect.Field) and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, inspect.Type):
            yield found
        for name in found.__struct_fields__:
            yield from _parts(getattr(found, name), seen)


def _takes_builtins(kind: Any) -> bool:
    """Whether a value as JSON has it may be an instance of this class, as of `object` or `Iterable`."""
    try:
        return any(issubclass(builtin, kind) for builtin in _FROM_JSON)
    except TypeError:
        return False
