"""Stores, one folder per database. `make_store` is the only door."""

from pathlib import Path
from urllib.parse import unquote

from ..errors import BadSetting
from ..store import Store
from ..survey import Examination

_SQLITE_FORMS = "write sqlite:///name.db for a relative file, sqlite:////folder/name.db for an absolute one"


def make_store(database_url: str, *, audit: bool = False) -> Store:
    """The store that a URL names, not yet open: `sqlite:///x` is relative, four slashes absolute, `sqlite://` in memory."""
    scheme, separator, rest = database_url.partition("://")
    if scheme == "sqlite" and separator:
        from .sqlite import SqliteStore

        if rest in ("", "/:memory:"):
            return SqliteStore(audit=audit)
        if not rest.startswith("/") or rest == "/" or "?" in rest:
            raise BadSetting("database URL", _SQLITE_FORMS)
        return SqliteStore(Path(unquote(rest[1:])), audit=audit)
    raise BadSetting("database URL", f"no engine for {scheme or 'an empty scheme'!r}; this demora knows sqlite:///…")


def examine(database_url: str, *, integrity: bool = True) -> Examination:
    """What can be said of a database without opening it: what and where it is, and with `integrity` whether it is whole.
    Makes and changes nothing."""
    from .sqlite import SqliteStore, examination

    store = make_store(database_url)
    if not isinstance(store, SqliteStore) or store.path is None:
        return Examination([], usable=True)
    return examination.examine(store.path, integrity=integrity)


def schema_version(database_url: str) -> int | None:
    """The version of the schema in a database, None if there is none yet. Makes and changes nothing."""
    from .sqlite import SqliteStore, connections

    store = make_store(database_url)
    path = store.path if isinstance(store, SqliteStore) else None
    return connections.peek(path) if path is not None and path.exists() else None
