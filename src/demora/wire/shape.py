"""How a value becomes its view, which is the shape it has on the wire, and is read back.

JSON is in camelCase. Times are RFC 3339 in UTC, spans are milliseconds, and enums are the names or texts of their members.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from ..core.spans import MILLISECOND, span_ms, timestamp

V = TypeVar("V", bound=msgspec.Struct)
W = TypeVar("W", bound=msgspec.Struct)


class Shape(Generic[V, W]):
    """Converts between a kind of value and its view. The fields that both have are converted by their types.

    `other` says which fields of the view have another name in the value, or a shape of their own. All other fields are given
    to `write` and `read`, or have their defaults.
    """

    def __init__(self, value: type[V], view: type[W], **other: "str | Shape[Any, Any]") -> None:
        self._value, self._view, self._other = value, view, other

    def write(self, value: V, **given: Any) -> W:
        """Return the view of a value, with the given fields as they are."""
        fields = self._fields
        written = {name: rule.write(getattr(value, own)) for name, own, rule in fields if name not in given}
        return self._view(**written, **given)

    def read(self, view: W, **given: Any) -> V:
        """Return the value of a view, with the given fields as they are. A field that is left out has its default."""
        shown = ((own, getattr(view, name), rule) for name, own, rule in self._fields if own not in given)
        return self._value(**{own: rule.read(one) for own, one, rule in shown if one is not msgspec.UNSET}, **given)

    @cached_property
    def _fields(self) -> "list[tuple[str, str, _Rule]]":
        """The fields that both have: the name in the view, the name in the value, and the rule for its type."""
        kinds = {field.name: field.type for field in msgspec.structs.fields(self._value)}
        others = {name: self._other.get(name, name) for name in self._view.__struct_fields__}
        names = {name: other if isinstance(other, str) else name for name, other in others.items()}
        return [(name, own, _rule(kinds[own], others[name])) for name, own in names.items() if own in kinds]


class _Rule(NamedTuple):
    """How a field is written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _rule(kind: Any, shape: "str | Shape[Any, Any]") -> _Rule:
    if type(None) in get_args(kind):
        [kind] = set(get_args(kind)) - {type(None)}
        one = _rule(kind, shape)
        return _Rule(_unless_none(one.write), _unless_none(one.read))
    if (several := get_origin(kind)) in (list, tuple):
        one = _rule(get_args(kind)[0], shape)
        return _Rule(_each(one.write, list), _each(one.read, several))
    if isinstance(shape, Shape):
        return _Rule(shape.write, shape.read)
    if kind is datetime:
        return _Rule(timestamp, datetime.fromisoformat)
    if kind is timedelta:
        return _Rule(span_ms, lambda milliseconds: milliseconds * MILLISECOND)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return _Rule(lambda member: member.name, kind.__getitem__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _Rule(lambda member: member.value, kind)
    return _Rule(_same, _same)


def _unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda one: None if one is None else convert(one)


def _each(convert: Callable[[Any], Any], collect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda several: collect(map(convert, several))


def _same(one: Any) -> Any:
    return one


def time_or_none(at: datetime | None) -> str | None:
    return None if at is None else timestamp(at)
