"""The headers of a request, indexed by name."""

from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import Scope


class RequestHeaders(Headers):
    """Headers with an index: a request is asked for a dozen of them, and Starlette compares each name with all headers."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._list = raw
        self._first = dict(reversed(raw))  # of a repeated header the first

    @classmethod
    def of(cls, scope: Scope) -> "RequestHeaders":
        """Return the headers of an ASGI request, whose names are in lower case."""
        return cls(list(scope["headers"]))

    def getlist(self, key: str) -> list[str]:
        value = self._first.get(_name(key))
        if value is None:
            return []
        repeated = len(self._first) != len(self._list)
        return super().getlist(key) if repeated else [value.decode("latin-1")]

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        value = self._first.get(_name(key))
        return default if value is None else value.decode("latin-1")

    def __getitem__(self, key: str) -> str:
        return self._first[_name(key)].decode("latin-1")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _name(key) in self._first


@lru_cache(256)
def _name(key: str) -> bytes:
    """Return the name of a header as requests have it. The program asks for a few names, again and again."""
    return key.lower().encode("latin-1")
