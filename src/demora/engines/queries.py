"""Reads the `queries.sql` of an engine: blocks that begin with `-- name: verb`."""

import re
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load(package: str) -> dict[str, str]:
    """The named blocks of a package's `queries.sql`, without comments."""
    parts = _BLOCK.split((files(package) / "queries.sql").read_text())[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{package}: a query name stands twice")
    return {name: _bare(body) for name, body in zip(names, bodies, strict=True)}


def _bare(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--")).strip().rstrip(";")
