"""The engines: stores on SQL databases, one folder for each. `make_store` chooses one by the URL; `examine` and
`schema_version` look at a database that is not open."""

import asyncio
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

from ..core.dsn import scheme_of
from ..errors import BadSetting
from ..line import HORIZON, LinedStore, SqlStore
from ..store.diagnostics import Examination
from ..store.store import Store
from .options import PostgresOptions

_SQLITE_FORMS = "write sqlite:///name.db for a relative file, sqlite:////folder/name.db for an absolute one"
_NO_REDIS = "Redis needs a driver that is not installed: pip install 'demora[redis]'"
_A_SERVICE = (
    "is the URL of a service, and this needs the database itself, sqlite:///… or postgresql://…; "
    "over HTTP, use a Python application or demora worker --url"
)
_NO_DRIVER = "PostgreSQL needs a driver that is not installed: pip install 'demora[postgres]'"


def make_store(
    database_url: str,
    *,
    redis_url: str | None = None,
    line_horizon: timedelta = HORIZON,
    audit: bool = False,
    postgres: PostgresOptions | None = None,
) -> Store:
    """Make the store that a URL names, without opening it.

    `sqlite:///x` is a relative path, four slashes make it absolute, and `sqlite://` is a database in memory.
    `postgresql://…` is a PostgreSQL database, used with the options `postgres`. With a `redis_url` the store has a line,
    which holds the jobs that are due within the `line_horizon`.
    """
    store = _sql_store(database_url, audit=audit, postgres=postgres)
    return store if redis_url is None else _with_line(store, redis_url, line_horizon)


def _with_line(store: SqlStore, redis_url: str, horizon: timedelta) -> Store:
    try:
        from ..line.redis import RedisLine
    except ModuleNotFoundError as missing:
        raise BadSetting("redis_url", _NO_REDIS) from missing
    return LinedStore(store, lambda: RedisLine(redis_url), horizon=horizon)


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
    if scheme in ("http", "https") and separator:
        raise BadSetting("database_url", _A_SERVICE)
    known, named = "sqlite:///… and postgresql://…", scheme_of(database_url)
    which = "a URL without a scheme" if named is None else repr(named)
    raise BadSetting("database_url", f"no engine for {which}; demora supports {known}")


def is_in_memory(database_url: str) -> bool:
    """Whether a URL names a database in the memory of a process. `BadSetting` if no engine accepts the URL."""
    from .sqlite import SqliteStore

    store = make_store(database_url)
    return isinstance(store, SqliteStore) and store.path is None


def same_database(one: str, other: str) -> bool:
    """Whether two URLs name the same database: as they are written or, for SQLite, as the same file."""
    if one == other:
        return True
    prefix = "sqlite:///"
    if not (one.startswith(prefix) and other.startswith(prefix)):
        return False
    return Path(unquote(one.removeprefix(prefix))).resolve() == Path(unquote(other.removeprefix(prefix))).resolve()


def examine(database_url: str, *, integrity: bool = True, postgres: PostgresOptions | None = None) -> Examination:
    """Examine a database without opening the store; with `integrity` also whether a SQLite file is undamaged. Creates and
    changes nothing. Not for use in an event loop."""
    from .sqlite import SqliteStore, diagnostics

    store = make_store(database_url, postgres=postgres)
    if isinstance(store, SqliteStore):
        return Examination([], usable=True) if store.path is None else diagnostics.examine(store.path, integrity=integrity)
    from .postgres import diagnostics as server

    return asyncio.run(server.examine(database_url, postgres or PostgresOptions()))


async def schema_version(database_url: str, *, postgres: PostgresOptions | None = None) -> int | None:
    """The version of the schema in a database, None if there is none yet. Creates and changes nothing."""
    store = make_store(database_url, postgres=postgres)
    if database_url.startswith("sqlite"):
        from .sqlite import SqliteStore
        from .sqlite.connection import connections

        path = store.path if isinstance(store, SqliteStore) else None
        return connections.stored_version(path) if path is not None and path.exists() else None
    from .postgres.connection.migrating import stored_version

    return await stored_version(database_url, postgres or PostgresOptions())
