"""Settings, read at the edge only: arguments first, then `DEMORA_…` variables, then a TOML file, then defaults."""

import os
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from .core.spans import span
from .engines.options import PostgresOptions
from .errors import BadSetting, Invalid

DEFAULT_FILE = "demora.toml"


class Settings(msgspec.Struct, frozen=True):
    """All that can be set. Each name in capitals behind `DEMORA_` is its variable."""

    database_url: str = "sqlite:///demora.db"
    database_schema: str = "demora"
    database_connections: int = 8
    database_timeout: timedelta = timedelta(seconds=30)
    database_pooler: bool = False
    database_listen_url: str | None = None
    database_notify: bool = True
    redis_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    lease: timedelta = timedelta(seconds=30)
    grace: timedelta = timedelta(seconds=8)
    concurrency: int = 20
    known_types_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    audit: bool = False

    @property
    def postgres(self) -> PostgresOptions:
        """How a PostgreSQL database is used."""
        return PostgresOptions(
            schema=self.database_schema,
            connections=self.database_connections,
            timeout=self.database_timeout,
            pooler=self.database_pooler,
            listen_url=self.database_listen_url,
            notify=self.database_notify,
        )


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings in force; `given` are arguments, of which None means not given. The file is `demora.toml` in the current
    folder, or the one that `DEMORA_CONFIG` names."""
    environment = os.environ if environment is None else environment
    found = _from_file(environment)
    for name in Settings.__struct_fields__:
        variable = f"DEMORA_{name.upper()}"
        if environment.get(variable):
            found[name] = (variable, environment[variable])
    found |= {name: (name, value) for name, value in given.items() if value is not None}
    return _checked(Settings(**{name: _value(name, source, value) for name, (source, value) in found.items()}))


def _from_file(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    path = Path(environment.get("DEMORA_CONFIG") or DEFAULT_FILE)
    if not path.exists():
        if environment.get("DEMORA_CONFIG"):
            raise BadSetting("DEMORA_CONFIG", f"there is no file {path}")
        return {}
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise BadSetting(str(path), f"cannot be read: {problem}") from problem
    unknown = sorted(set(content) - set(Settings.__struct_fields__))
    if unknown:
        raise BadSetting(str(path), f"unknown setting {unknown[0]!r}; known: {', '.join(Settings.__struct_fields__)}")
    return {name: (f"{path}: {name}", value) for name, value in content.items()}


def _value(name: str, source: str, value: Any) -> Any:
    kind = _KINDS[name]
    try:
        if kind is timedelta:
            return span(value, source)
        if kind is _NAMES and isinstance(value, str):
            value = value.split(",")
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except Invalid as problem:
        raise BadSetting(source, problem.reason) from None
    except msgspec.ValidationError:
        raise BadSetting(source, f"must be {_RIGHT[kind]}") from None


_NAMES = tuple[str, ...]
_RIGHT: dict[Any, str] = {
    str: "text",
    str | None: "text",
    int: "a whole number",
    bool: "true or false",
    _NAMES: "a list of names",
}
_KINDS: dict[str, Any] = {
    "database_url": str,
    "database_schema": str,
    "database_connections": int,
    "database_timeout": timedelta,
    "database_pooler": bool,
    "database_listen_url": str | None,
    "database_notify": bool,
    "redis_url": str | None,
    "host": str,
    "port": int,
    "lease": timedelta,
    "grace": timedelta,
    "concurrency": int,
    "known_types_only": bool,
    "allowed_hosts": _NAMES,
    "audit": bool,
}


def _checked(settings: Settings) -> Settings:
    if not 0 <= settings.port <= 65535:
        raise BadSetting("port", "must be from 0 to 65535")
    if not 1 <= settings.concurrency <= 10_000:
        raise BadSetting("concurrency", "must be from 1 to 10000")
    if not timedelta(milliseconds=100) <= settings.lease <= timedelta(days=1):
        raise BadSetting("lease", "must be from 100ms to 1d")
    settings.postgres.checked()
    if settings.redis_url is not None:
        raise BadSetting("redis_url", "this demora has no Redis line yet; unset DEMORA_REDIS_URL")
    return settings
