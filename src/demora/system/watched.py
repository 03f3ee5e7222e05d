"""Which paces a scheduler of this process watches. It logs every change of them, so the caller that makes one does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

_watched: WeakSet[object] = WeakSet()


@contextmanager
def watching(paces: object) -> Iterator[None]:
    """Count the paces of a store as watched until the end of the block."""
    _watched.add(paces)
    try:
        yield
    finally:
        _watched.discard(paces)


def is_watched(paces: object) -> bool:
    """Return whether a scheduler on this store logs each change of its paces."""
    return paces in _watched
