"""A store whose jobs are lined up elsewhere: SQL remembers, the line says who is next."""

from .inner import Inner
from .store import JoiningLinedStore, LinedStore

__all__ = ["Inner", "JoiningLinedStore", "LinedStore", "lined"]

from collections.abc import Callable

from ..transactions import Transactional
from .port import Line


def lined(inner: Inner, make_line: Callable[[], Line]) -> LinedStore:
    """A store on top of an SQL store and a line; it can join transactions if the SQL store can."""
    return (JoiningLinedStore if isinstance(inner, Transactional) else LinedStore)(inner, make_line)
