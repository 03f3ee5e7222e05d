"""The steps of a schema, from its numbered files.

A step is applied in one transaction, and earlier versions of demora cannot open the database after it. A file whose first
line is `-- online` is an online step: earlier versions keep using the database during the step and after it, even if they
are restarted. Blank lines separate its blocks. Each block is applied in a transaction of its own, so that no lock is held
for long, and a step that was interrupted continues at the same block. A block that begins with `-- repeat` is applied again
until its last statement changes nothing. On PostgreSQL a block may be one `create index concurrently`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...errors import SchemaTooNew

_ONLINE, _REPEAT = "-- online\n", "-- repeat\n"
_BLANK = re.compile(r"\n\s*\n")
_MADE = re.compile(
    r"(?:create|alter|drop)\s+(?:unique\s+)?(?:index|table|trigger)\s+(?:concurrently\s+)?(?:[\w\"]+\.)?(\w+)"
)


class Block(NamedTuple):
    """A part of an online step that is committed by itself."""

    sql: str
    repeated: bool

    @property
    def subject(self) -> str:
        """The name of the first index or table that the block makes or changes."""
        made = _MADE.search(self.sql)
        return made[1] if made else "rows"


class SchemaStep(NamedTuple):
    """One numbered file of a schema."""

    number: int
    sql: str

    @property
    def online(self) -> bool:
        return self.sql.startswith(_ONLINE)

    @property
    def blocks(self) -> list[Block]:
        parts = (part.strip() for part in _BLANK.split(self.sql.removeprefix(_ONLINE)))
        return [Block(part, part.startswith(_REPEAT)) for part in parts if not _is_comment(part)]


def in_order(files: Iterable[tuple[str, str]]) -> list[SchemaStep]:
    """The steps, from the names and texts of their files."""
    return sorted(SchemaStep(int(name.split("_")[0]), text) for name, text in files)


def refuse_newer(version: int, oldest: int | None, steps: Sequence[SchemaStep]) -> None:
    """Raise `SchemaTooNew` if this demora may not use the schema `version`. A demora may if it knows the steps up to
    `oldest`; without that record it must know all of them."""
    known = steps[-1].number
    if known < version and known < (version if oldest is None else oldest):
        raise SchemaTooNew(version, known)


def _is_comment(text: str) -> bool:
    return all(line.startswith("--") for line in text.splitlines())
