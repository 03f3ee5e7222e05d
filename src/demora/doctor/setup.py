"""Judges the settings, and lists the versions of demora and its libraries."""

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..core.dsn import without_secrets
from ..settings import Settings, nearest, sources, troubles, unknown_variables
from ..store.diagnostics import Finding

_LIBRARIES = ("click", "msgspec", "rich", "starlette", "uvicorn", "uvloop")


def judge_settings(environment: Mapping[str, str], **given: Any) -> Iterator[Finding]:
    """Yield where the settings come from, every invalid setting, and every unknown DEMORA_ variable. Shows no values."""
    bad = troubles(environment, **given)
    for problem in bad:
        yield Finding("settings", "problem", str(problem), "correct it; docs/reference/settings.md describes every setting")
    if not bad:
        set_by = [f"{name} by {_source(name, source)}" for name, source in sources(environment, **given).items()]
        usual = len(Settings.__struct_fields__) - len(set_by)
        yield Finding("settings", "ok", "; ".join([*set_by, f"{usual} have their defaults"]))
    for name in unknown_variables(environment):
        meant = nearest(name)
        advice = "correct its name, or unset it" if meant is None else f"rename it to {meant} if you mean that, or unset it"
        yield Finding("settings", "warning", f"the variable {name} is not a setting of demora", advice)


def judge_application(database_url: str, other: tuple[str, str] | None) -> Iterator[Finding]:
    """Yield a warning if the environment or the settings file names another database than the code of the application.

    `other` is that database and which of them names it.
    """
    if other is not None:
        named, source = other
        yield Finding(
            "application",
            "warning",
            f"its code says {without_secrets(database_url)}, and {source} says {without_secrets(named)}: this check looks "
            "at the first, and commands without the application look at the second",
            f"write Demora() in the code, so that {source} decides everywhere, or remove {source}",
        )


def versions(demora: str) -> Finding:
    """Return one finding with the versions of demora, Python and the libraries."""
    found = [f"{name} {_version(name)}" for name in _LIBRARIES]
    return Finding("versions", "ok", ", ".join([f"demora {demora}", f"Python {platform.python_version()}", *found]))


def _source(name: str, source: str) -> str:
    return "an option" if source == name else source


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
