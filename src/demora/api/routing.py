"""Finds the resource of a path: paths without parameters in a dict, all others with one pattern."""

import re
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from starlette.types import Scope

R = TypeVar("R")
_PARAMETER = re.compile(r"\{(\w+)\}")


class _Parametrized(NamedTuple, Generic[R]):
    """A resource whose path has parameters, and the group of the pattern that each of them is."""

    resource: R
    groups: dict[str, int]


class Paths(Generic[R]):
    """Resources by their paths, such as `/api/v1/jobs/{id}/why`. A parameter stands for one segment that is not empty. Of
    several paths with parameters that match, the first counts; a path without parameters precedes them."""

    def __init__(self, resources: Mapping[str, R]) -> None:
        self._exact: dict[str, R] = {}
        self._parametrized: dict[int, _Parametrized[R]] = {}  # by the group of its alternative in the pattern
        alternatives: list[str] = []
        group = 1
        for path, resource in resources.items():
            literals = _PARAMETER.split(path)
            names = literals[1::2]
            if not names:
                self._exact[path] = resource
                continue
            self._parametrized[group] = _Parametrized(resource, {name: group + n for n, name in enumerate(names, 1)})
            alternatives.append("(" + "([^/]+)".join(map(re.escape, literals[::2])) + ")")
            group += 1 + len(names)
        self._pattern = re.compile("|".join(alternatives))

    def find(self, path: str) -> tuple[R, dict[str, str]] | None:
        """Return the resource of a path and its parameters, or None."""
        resource = self._exact.get(path)
        if resource is not None:
            return resource, {}
        match = self._pattern.fullmatch(path)
        if match is None or match.lastindex is None:
            return None
        resource, groups = self._parametrized[match.lastindex]
        return resource, {name: match[group] for name, group in groups.items()}


def path_below(path: str, root: str) -> str:
    """Return a path without the `root` that an application is mounted at. A proxy may have removed the root already."""
    return path[len(root) :] if path == root or path.startswith(f"{root}/") else path


def path_below_root(scope: Scope) -> str:
    """Return the path of a request below the one that the application is mounted at."""
    return path_below(scope["path"], scope.get("root_path", ""))
