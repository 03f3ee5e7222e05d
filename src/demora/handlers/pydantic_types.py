"""Payloads and results whose annotations are pydantic's. pydantic is imported only for a handler that uses it."""

import contextlib
import copy
import dataclasses
import importlib.util
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NotRequired

from ..core.payload import UNKNOWN_FIELD
from ..errors import Invalid

_PACKAGES = ("pydantic", "pydantic_core", "pydantic_extra_types")
_CONSTRAINTS = "annotated_types"  # what pydantic's PositiveInt and conint are made of
_REASONS = {"missing": "is required", "extra_forbidden": UNKNOWN_FIELD}
_MOST_NAME = 100  # characters of a name that the caller chose


def is_pydantic(hint: Any) -> bool:
    """Return whether pydantic must read an annotation: it names a model, or has a constraint that only pydantic checks."""
    found = {_package(part) for part in _parts(hint, set())}
    if not found.isdisjoint(_PACKAGES):
        return True
    return _CONSTRAINTS in found and importlib.util.find_spec("pydantic") is not None


class PydanticReader:
    """Reads payloads with one pydantic model of all fields. `hints` and `defaults` are those of the handler's parameters.

    `TypeError` says which annotation pydantic cannot read.
    """

    def __init__(self, hints: Mapping[str, Any], defaults: Mapping[str, Any], *, is_open: bool) -> None:
        from pydantic import ConfigDict, TypeAdapter
        from pydantic.errors import PydanticUserError
        from pydantic.fields import FieldInfo
        from typing_extensions import TypedDict

        for name, default in defaults.items():
            if isinstance(default, FieldInfo):
                raise TypeError(f"write {name}: Annotated[…, Field(…)], with a default of the type itself")
        self.names, self._defaults = tuple(hints), defaults
        items = {name: NotRequired[hint] if name in defaults else hint for name, hint in hints.items()}
        make: Any = TypedDict  # called with a dict that no type checker can read
        shape = make("Payload", items)
        shape.__pydantic_config__ = ConfigDict(extra="allow" if is_open else "forbid")
        try:
            self._validate = TypeAdapter(shape).validate_json
        except PydanticUserError as problem:
            raise TypeError(problem.message.partition(". ")[0]) from problem

    def read(self, payload: bytes) -> dict[str, Any]:
        """Return the checked fields of a payload, with defaults for those that it lacks; `Invalid` names one that does not
        fit."""
        return {name: copy.copy(value) for name, value in self._defaults.items()} | _validated(self._validate, payload)

    def arguments(self, fields: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Return the keyword arguments for the handler. An open one also gets the fields that it does not declare."""
        return fields


def result_reader(hint: Any) -> Callable[[bytes], Any]:
    """Return a function that reads a stored result as this type; it raises `ValueError` if the result does not fit."""
    from pydantic import TypeAdapter

    return TypeAdapter(hint).validate_json


def _validated(validate: Callable[[bytes], dict[str, Any]], payload: bytes) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        return validate(payload)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        raise Invalid(_place(first["loc"]), _REASONS.get(first["type"], first["msg"])) from None


def _place(path: Sequence[str | int]) -> str:
    return "payload" + "".join(f"[{step}]" if isinstance(step, int) else f".{step[:_MOST_NAME]}" for step in path)


def _package(part: Any) -> str:
    """Return the package that an annotation, or a value in it, comes from. A class that inherits from pydantic's counts as
    pydantic's."""
    kinds = part.__mro__ if isinstance(part, type) else type(part).__mro__
    if "__pydantic_core_schema__" in getattr(part, "__dict__", {}):
        return "pydantic"  # a dataclass of pydantic has no base class of it
    packages = {kind.__module__.partition(".")[0] for kind in kinds}
    return next((package for package in (*_PACKAGES, _CONSTRAINTS) if package in packages), "")


def _parts(hint: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an annotation and all that stands in it: arguments, metadata, and the fields of dataclasses and TypedDicts."""
    if id(hint) in seen:
        return
    seen.add(id(hint))
    yield hint
    inside = [*typing.get_args(hint), *getattr(hint, "__metadata__", ())]
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        with contextlib.suppress(Exception):  # a name that cannot be resolved is reported when the reader is made
            inside += typing.get_type_hints(hint, include_extras=True).values()
    for part in inside:
        yield from _parts(part, seen)
