"""Where the jobs of Django's tasks are: in Django's own database if it is PostgreSQL, otherwise in a file beside it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_FILE, _MEMORY = "sqlite:///", "sqlite://"
_PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey")  # OPTIONS of a database that mean the same to demora
OWN_FILE = (
    "the jobs would be in Django's own SQLite file. Two SQLite libraries in one process drop each other's locks on a file; "
    "leave the URL out to keep jobs in a file beside it"
)


def database_url(options: Mapping[str, Any]) -> str:
    """Return the URL of the jobs' database: that of the options, of DEMORA_DATABASE_URL, or the one that suits Django's."""
    url = options.get("database_url") or os.environ.get("DEMORA_DATABASE_URL") or _beside(django_alias(options))
    if is_own_file(url):
        raise ImproperlyConfigured(OWN_FILE)
    return str(url)


def django_alias(options: Mapping[str, Any]) -> str:
    """Return the alias of the Django database whose transactions count."""
    alias: str = options.get("database", "default")
    return alias


def is_own_file(url: str) -> bool:
    """Whether a URL names a SQLite file of Django."""
    return url.startswith(_FILE) and Path(unquote(url.removeprefix(_FILE))).resolve() in set(_own_files())


def _own_files() -> Iterator[Path]:
    for alias in connections:
        connection = connections[alias]
        if connection.vendor == "sqlite" and not _is_in_memory(str(connection.settings_dict["NAME"])):
            yield Path(connection.settings_dict["NAME"]).resolve()


def _beside(alias: str) -> str:
    connection = connections[alias]
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "postgresql":
        return _postgres_url(connection.settings_dict)
    if connection.vendor != "sqlite":
        return _file_url(Path(getattr(settings, "BASE_DIR", ".")) / "demora.db")
    return _MEMORY if _is_in_memory(name) else _file_url(Path(name).with_suffix(".demora.db"))


def _file_url(path: Path) -> str:
    return _FILE + quote(str(path.absolute()))


def _is_in_memory(name: str) -> bool:
    return name == ":memory:" or "mode=memory" in name


def _postgres_url(given: Mapping[str, Any]) -> str:
    options = given.get("OPTIONS", {})
    if "service" in options or not given["NAME"]:
        raise ImproperlyConfigured('this database is named by a service: give its URL in OPTIONS["database_url"] of TASKS')
    host = str(given["HOST"])
    parameters = {name: options[name] for name in _PASSED_ON if name in options}
    if host.startswith("/"):
        parameters["host"], host = host, ""
    port = f":{given['PORT']}" if given["PORT"] and host else ""
    if given["PORT"] and not host:
        parameters["port"] = given["PORT"]
    user = quote(str(given["USER"]), safe="")
    password = f":{quote(str(given['PASSWORD']), safe='')}" if given["PASSWORD"] else ""
    account = f"{user}{password}@" if user else ""
    query = "&".join(f"{name}={quote(str(value), safe='/')}" for name, value in parameters.items())
    return f"postgresql://{account}{host}{port}/{quote(str(given['NAME']), safe='')}{'?' if query else ''}{query}"
