"""The settings in force, and the versions of what demora stands on."""

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..settings import Settings, nearest, sources, troubles, unknown_variables
from ..store.diagnostics import Finding

_LIBRARIES = ("click", "msgspec", "rich", "starlette", "uvicorn", "uvloop")


def judge_settings(environment: Mapping[str, str], **given: Any) -> Iterator[Finding]:
    """Where settings come from, every one that cannot be used, and variables that set nothing. Tells no values."""
    bad = troubles(environment, **given)
    for problem in bad:
        yield Finding("settings", "problem", str(problem), "correct it; every setting is in docs/reference/settings.md")
    if not bad:
        set_by = [f"{name} by {_said(name, source)}" for name, source in sources(environment, **given).items()]
        usual = len(Settings.__struct_fields__) - len(set_by)
        yield Finding("settings", "ok", "; ".join([*set_by, f"{usual} left at their defaults"]))
    for name in unknown_variables(environment):
        meant = nearest(name)
        advice = "correct its name, or unset it" if meant is None else f"write {meant} if that is meant, or unset it"
        yield Finding("settings", "warning", f"the variable {name} is no setting of demora", advice)


def versions(demora: str) -> Finding:
    found = [f"{name} {_version(name)}" for name in _LIBRARIES]
    return Finding("versions", "ok", ", ".join([f"demora {demora}", f"Python {platform.python_version()}", *found]))


def _said(name: str, source: str) -> str:
    return "an option" if source == name else source


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
