"""Reads the SQL of an engine from its files.

`queries.sql` holds named blocks. A block begins with `-- name: verb`. It may contain `{another}` block and the number of a
status, such as `{PROCESSING}`. `{PARKED}` is the number of the first lane of parked jobs. `{BOUNDS}` are the bounds of the
bins in statistics, which are too many to send with each statement.
"""

import re
from importlib.resources import files

from ...core.job import PARKED
from ...core.states import Status
from ...core.statistics import BOUNDS

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_REFERENCE = re.compile(r"\{(\w+)\}")
_STATUSES = {"PARKED": str(PARKED), **{status.name: str(status.value) for status in Status}}
_BINS = {"BOUNDS": f"array{[*BOUNDS]}::bigint[]"}
_STATUS = re.compile(rf"\{{({'|'.join(_STATUSES)})\}}")


def load(package: str) -> dict[str, str]:
    """The named blocks of a package's `queries.sql`, without comments and with their references filled in."""
    parts = _BLOCK.split((files(package) / "queries.sql").read_text())[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{package}: two queries have the same name")
    blocks = {name: _bare(body) for name, body in zip(names, bodies, strict=True)}
    return {name: _filled(body, _STATUSES | _BINS | blocks) for name, body in blocks.items()}


def with_statuses(sql: str) -> str:
    """A script with the numbers of statuses in place of `{PROCESSING}` and the like."""
    return _STATUS.sub(lambda found: _STATUSES[found[1]], sql)


def _bare(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--")).strip().rstrip(";")


def _filled(body: str, parts: dict[str, str]) -> str:
    return _REFERENCE.sub(lambda found: _filled(parts[found[1]], parts), body)
