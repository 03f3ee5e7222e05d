"""Checks that the annotation of a handler's parameter can be read from JSON."""

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

_FROM_JSON = (str, int, float, bool, list, dict, type(None))
_RIGHT = "a payload is JSON: use builtins, dates, UUIDs, enums, dataclasses, TypedDicts or msgspec structs"


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
