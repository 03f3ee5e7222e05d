"""Stores, one folder per database. `make_store` is the only door."""

import asyncio
from pathlib import Path
from urllib.parse import unquote

from ..core.dsn import scheme_of
from ..errors import BadSetting
from ..line import LinedStore, SqlStore
from ..store.diagnostics import Examination
from ..store.full import FullStore
from .options import PostgresOptions

_SQLITE_FORMS = "write sqlite:///name.db for a relative file, sqlite:////folder/name.db for an absolute one"
_NO_REDIS = "Redis needs a driver that is not installed: pip install 'demora[redis]'"
_NO_DRIVER = "PostgreSQL needs a driver that is not installed: pip install 'demora[postgres]'"


def make_store(
    database_url: str, *, redis_url: str | None = None, audit: bool = False, postgres: PostgresOptions | None = None
) -> FullStore:
    """The store that a URL names, not yet open: `sqlite:///x` is relative, four slashes absolute, `sqlite://` in memory;
    `postgresql://…` is a PostgreSQL database, used as `postgres` says. With a `redis_url` its jobs are lined up there."""
    store = _sql_store(database_url, audit=audit, postgres=postgres)
    return store if redis_url is None else _with_line(store, redis_url)


def _with_line(store: SqlStore, redis_url: str) -> FullStore:
    try:
        from ..line.redis import RedisLine
    except ModuleNotFoundError as missing:
        raise BadSetting("redis_url", _NO_REDIS) from missing
    return LinedStore(store, lambda: RedisLine(redis_url))


def _sql_store(database_url: str, *, audit: bool, postgres: PostgresOptions | None) -> SqlStore:
    scheme, separator, rest = database_url.partition("://")
    if scheme == "sqlite" and separator:
        from .sqlite import SqliteStore

        if rest in ("", "/:memory:"):
            return SqliteStore(audit=audit)
        if not rest.startswith("/") or rest == "/" or "?" in rest:
            raise BadSetting("database_url", _SQLITE_FORMS)
        return SqliteStore(Path(unquote(rest[1:])), audit=audit)
    if scheme in ("postgresql", "postgres") and separator:
        try:
            from .postgres import PostgresStore
        except ModuleNotFoundError as missing:
            raise BadSetting("database_url", _NO_DRIVER) from missing
        return PostgresStore(database_url, postgres, audit=audit)
    known, named = "sqlite:///… and postgresql://…", scheme_of(database_url)
    which = "a URL without a scheme" if named is None else repr(named)
    raise BadSetting("database_url", f"no engine for {which}; this demora knows {known}")


def examine(database_url: str, *, integrity: bool = True, postgres: PostgresOptions | None = None) -> Examination:
    """What can be said of a database without opening it: what and where it is, and with `integrity` whether a file is whole.
    Makes and changes nothing. Not for use in an event loop."""
    from .sqlite import SqliteStore, diagnostics

    store = make_store(database_url, postgres=postgres)
    if isinstance(store, SqliteStore):
        return Examination([], usable=True) if store.path is None else diagnostics.examine(store.path, integrity=integrity)
    from .postgres import diagnostics as server

    return asyncio.run(server.examine(database_url, postgres or PostgresOptions()))


async def schema_version(database_url: str, *, postgres: PostgresOptions | None = None) -> int | None:
    """The version of the schema in a database, None if there is none yet. Makes and changes nothing."""
    store = make_store(database_url, postgres=postgres)
    if database_url.startswith("sqlite"):
        from .sqlite import SqliteStore, connections

        path = store.path if isinstance(store, SqliteStore) else None
        return connections.peek(path) if path is not None and path.exists() else None
    from .postgres.connections import peek

    return await peek(database_url, postgres or PostgresOptions())
