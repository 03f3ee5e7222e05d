"""Reads the `queries.sql` of an engine: blocks that begin with `-- name: verb`, and may hold `{another}` of them."""

import re
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_HELD = re.compile(r"\{(\w+)\}")


def load(package: str) -> dict[str, str]:
    """The named blocks of a package's `queries.sql`, without comments."""
    parts = _BLOCK.split((files(package) / "queries.sql").read_text())[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{package}: a query name stands twice")
    blocks = {name: _bare(body) for name, body in zip(names, bodies, strict=True)}
    return {name: _whole(body, blocks) for name, body in blocks.items()}


def _bare(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--")).strip().rstrip(";")


def _whole(body: str, blocks: dict[str, str]) -> str:
    return _HELD.sub(lambda held: _whole(blocks[held[1]], blocks), body)
